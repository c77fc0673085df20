"""Draws the elements of all charts: colours, an empty sheet, axes, bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from metta_fast.bench.harness.other_load import DISTURBED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY, RED, GREEN = "#2f6db2", "#8b95a1", "#c8553d", "#3f9b73"
INK, FAINT, LINE = "#1f2933", "#6b7785", "#d9dee4"
COLORS = (BLUE, GREEN, "#e09f3e", "#8467b5", RED, "#4aa7b8", GREY)
DPI = 150
ROW = 0.36
"""Inches from one horizontal bar to the next."""

Row = dict[str, Any]


def sheet(document: Row, title: str, width: float, height: float) -> Figure:
    """Makes an empty figure with the title and the machine at the top and the command at the bottom."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with rc_context({"font.size": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
    layout = figure.get_layout_engine()
    assert isinstance(layout, ConstrainedLayoutEngine)
    layout.set(rect=(0, 0.22 / height, 1, 1 - 0.86 / height), w_pad=0.08, h_pad=0.08)
    figure.text(0.12 / width, 1 - 0.28 / height, title, fontsize=12.5, fontweight="bold", color=INK)
    machine = document.get("machine", {})
    about = [str(machine[key]) for key in ("cpu", "cores") if key in machine]
    about = [f"{about[0]}, {about[1]} cores"] if len(about) == 2 else about
    cards = machine.get("gpu", "none")
    about += [] if cards == "none" else [" + ".join(cards) if isinstance(cards, list) else str(cards)]
    about += [f"{key} {machine[key]}" for key in ("torch", "commit") if key in machine]
    if any(DISTURBED in note for note in document.get("notes", ())):
        about.append(f"{DISTURBED}: see the table's notes")
    figure.text(0.12 / width, 1 - 0.52 / height, " · ".join(about), fontsize=8, color=FAINT)
    command = str(document.get("command", ""))
    most = int(width * 17)  # characters of this small font
    command = command if len(command) <= most else command[: most - 1] + "…"
    figure.text(0.12 / width, 0.09 / height, command, fontsize=6.5, color=FAINT, family="monospace")
    return figure


def plain(axes: Axes, label: str = "") -> None:
    """Makes axes plain: no frame, a faint grid along x."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(which="both", colors=FAINT, length=0, labelsize=8)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(label, color=FAINT, fontsize=8)


def count(value: float) -> str:
    """Formats a number with three digits and a unit: `12.3 M`."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def bars(
    axes: Axes,
    rows: Sequence[Row],
    names: Sequence[str],
    colors: Sequence[str],
    label: Callable[[Row], str] = lambda row: count(row["steps_per_s"]),
    *,
    log: bool | None = None,
) -> None:
    """Draws horizontal bars of steps/s, the first on top, each with its spread and its value.

    Args:
        rows: a row with "failed" shows that word instead of a bar.
        log: logarithmic axis; None: if the shortest bar would be invisible otherwise.
    """
    good = [row for row in rows if "failed" not in row]
    lowest = min((row["low"] for row in good), default=1.0)
    highest = max((row["high"] for row in good), default=1.0)
    wide = highest > 60 * lowest if log is None else log
    for i, (row, color) in enumerate(zip(rows, colors, strict=True)):
        speed, at, text = lowest / 2 if wide else 0.0, 0.0, "failed"
        if "failed" not in row:
            speed, at, text = row["steps_per_s"], row["high"], label(row)
            hatch = "////" if row.get("reckoned") else ""
            axes.barh(i, speed, 0.66, color=color, hatch=hatch, edgecolor="white", linewidth=0)
            spread = [[speed - row["low"]], [row["high"] - speed]]
            axes.errorbar(speed, i, xerr=spread, color=INK, linewidth=0.9, capsize=2.5)
        style: Row = {"va": "center", "fontsize": 8, "color": INK if at else FAINT}
        axes.annotate(text, (at or speed, i), (6, 0), textcoords="offset points", **style)
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    plain(axes, "agent steps per second" + (", logarithmic" if wide else ""))
    if wide:
        axes.set_xscale("log")
        axes.set_xlim(lowest / 2, highest * (highest / lowest) ** 0.3)
    else:
        axes.set_xlim(0, highest * 1.32)
    axes.xaxis.set_major_formatter(lambda value, _: count(value) if value else "0")
    axes.xaxis.set_minor_formatter(lambda value, _: "")


def headline(document: Row) -> str:
    """Returns the chart's title: the ratio if there is exactly one."""
    ratios = document.get("ratios", [])
    if len(ratios) == 1:
        one = ratios[0]
        return f"{one['name']}: {one['value']:.2f} times ({one['low']:.2f} to {one['high']:.2f})"
    return "Agent steps per second: median, slowest and fastest round"


def wrapped(name: str, most: int = 46) -> str:
    """Wraps a name to at most two lines, at a space."""
    if len(name) <= most:
        return name
    at = name.rfind(" ", 0, most + 1)
    at = at if at > 0 else most
    rest = name[at:].strip()
    return f"{name[:at]}\n{rest if len(rest) <= most else rest[: most - 1] + '…'}"
