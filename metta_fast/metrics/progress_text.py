"""Formats a run's progress as text: numbers, one line of progress, the machine's readings.

Used by the dashboards (dashboard.py) and by `metta-fast monitor` (watch/).
"""

from __future__ import annotations

import math

RECENT = "env/return_100"
NO_EPISODE = "no episode has ended yet"
"""Mean return of the last 100 episodes (rollout/episode_stats.py)."""
READINGS: dict[str, tuple[str, ...]] = {
    "GPU busy": ("{perf/gpu_utilization:.0f} %",),
    "GPU memory": ("{perf/gpu_memory_mib:.0f} MiB {perf/gpu_memory_percent:3.0f} %",),
    "GPU power": ("{perf/gpu_power_w:.0f} / {perf/gpu_power_limit_w:.0f} W", "{perf/gpu_power_w:.0f} W"),
    "GPU clocks": ("{perf/gpu_clock_sm_mhz:.0f} / {perf/gpu_clock_memory_mhz:.0f} MHz",),
    "GPU heat": ("{perf/gpu_temperature_c:.0f} °C",),
    "CPU busy": ("{perf/cpu_utilization:.0f} %",),
    "memory": ("{perf/memory_gb:.1f} GiB {perf/memory_percent:3.0f} %",),
}
"""Label → formats; the first whose values are all present is used."""


def readings(seen: dict[str, float]) -> list[tuple[str, str]]:
    """Returns (label, text) of the machine's readings (machine/monitor.py) that are present."""
    return [(label, text) for label in READINGS if (text := reading(seen, label))]


def reading(seen: dict[str, float], label: str) -> str:
    """Formats the reading `label`; "" if this machine lacks it."""
    for words in READINGS[label]:
        try:
            return words.format_map(seen)
        except KeyError:
            continue
    return ""


def keep(row: dict[str, float]) -> dict[str, float]:
    """Returns the finite values. An epoch in which no episode ended has no return; the last one stays visible."""
    return {name: value for name, value in row.items() if value is not None and math.isfinite(value)}


def line(seen: dict[str, float], total: int) -> str:
    """Formats one plain line of progress.

    `1.2M/50M steps  2 %  512K/s  return 0.31 (last 100 episodes 0.28)  length 210  [env 40% update 35%]  left 80s`
    """
    steps = seen.get("train/steps", 0.0)
    parts = [
        f"{short(steps)}/{short(total)} steps",
        f"{min(100 * steps / max(total, 1), 100):.0f} %",
        f"{short(seen.get('perf/steps_per_second', 0.0))}/s",
    ]
    for name in ("env/return", "env/length", "eval/return", "loss/policy", "loss/value", "loss/entropy"):
        if name in seen:
            label = name.split("/")[1] if not name.startswith("eval") else "evaluation"
            parts.append(f"{label} {short(seen[name])}")
        if name == "env/return" and RECENT in seen:
            parts[-1] += f" (last 100 episodes {short(seen[RECENT])})"
    if "env/return" not in seen and steps:
        parts.append(NO_EPISODE)
    shares = sorted(time_shares(seen).items(), key=lambda item: -item[1])[:4]
    if shares:
        parts.append("[" + " ".join(f"{phase} {100 * share:.0f}%" for phase, share in shares) + "]")
    return "  ".join([*parts, f"left {time_left(seen, total)}"])


def time_shares(seen: dict[str, float]) -> dict[str, float]:
    """Returns the share of each phase in the last row's time, from `perf/time/<phase>` in seconds."""
    phases = {
        name.removeprefix("perf/time/"): value
        for name, value in seen.items()
        if name.startswith("perf/time/")
    }
    whole = sum(phases.values())
    return {name: value / whole for name, value in phases.items()} if whole > 0 else {}


def time_left(seen: dict[str, float], total: int) -> str:
    """Formats the time left at the mean speed so far, "?" if that is unknown."""
    rate = seen.get("perf/steps_per_second_mean", 0.0)
    if rate <= 0:
        return "?"
    seconds = int(max(total - seen.get("train/steps", 0.0), 0.0) / rate)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return (
        f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds % 60:02d}s" if minutes else f"{seconds}s"
    )


def short(value: float) -> str:
    """Formats a number in at most about seven characters: 1.23M, 512K, 0.0312, 1.2e-05."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "K")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'K' else size):.3g}{unit}"
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"
