"""Figures as a picture: `--plot FILE`, right after measuring or from a JSON file (`--from FILE`).

    draw(document, Path("figures.png"))      # the document of report.py, ablate.py or gpu_report.py

    "training" in it  ─► gpu_chart.py        rows with `changes` ─► the ladder        else ─► bars, phases below

matplotlib (extra `bench`) is imported when a picture is drawn, without its windows; .png, .svg or .pdf by the name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metta_fast.bench.load import DISTURBED
from metta_fast.errors import UserError

KINDS = (".png", ".svg", ".pdf")
BLUE, GREY, RED, GREEN = "#2f6db2", "#8b95a1", "#c8553d", "#3f9b73"
INK, FAINT, LINE = "#1f2933", "#6b7785", "#d9dee4"
COLORS = (BLUE, GREEN, "#e09f3e", "#8467b5", RED, "#4aa7b8", GREY)
DPI = 150
ROW = 0.36
"""Inches of a horizontal bar with the gap to the next."""
Row = dict[str, Any]


def check(path: Path) -> None:
    """Raises UserError: the picture could not be written, for want of matplotlib, a folder or a known ending."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--plot {path}: expected a name that ends in {', '.join(KINDS)}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--plot {path}: no folder {path.absolute().parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            "--plot needs matplotlib: pip install matplotlib (the extra `bench`); figures written by --json can be "
            "drawn later, also on another machine: --from FILE --plot FILE"
        )


def draw(document: Row, path: Path) -> None:
    """Write the picture of a report's JSON document. Raises UserError: nothing to draw, or no place to write."""
    if any(document.get(name) for name in ("training", "parts", "simulator", "scale")):
        from metta_fast.bench.gpu_chart import draw_gpu

        figure = draw_gpu(document)
    elif not document.get("rows"):
        raise UserError("there are no figures to draw")
    elif any("changes" in row for row in document["rows"]):
        figure = draw_ladder(document)
    else:
        figure = draw_rows(document)
    try:
        figure.savefig(path, dpi=DPI, facecolor="white")
    except OSError as error:
        raise UserError(f"cannot write --plot {path}: {error.strerror}") from error


def sheet(document: Row, title: str, width: float, height: float) -> Any:
    """An empty figure with a title, the machine below it and the command at the foot."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0, 0.22 / height, 1, 1 - 0.86 / height), w_pad=0.08, h_pad=0.08)
    figure.text(0.12 / width, 1 - 0.28 / height, title, fontsize=12.5, fontweight="bold", color=INK)
    machine = document.get("machine", {})
    about = [str(machine[key]) for key in ("cpu", "cores") if key in machine]
    about = [f"{about[0]}, {about[1]} cores"] if len(about) == 2 else about
    cards = machine.get("gpu", "none")
    about += [] if cards == "none" else [" + ".join(cards) if isinstance(cards, list) else str(cards)]
    about += [f"{key} {machine[key]}" for key in ("torch", "commit") if key in machine]
    if any(DISTURBED in note for note in document.get("notes", ())):
        about.append(f"{DISTURBED}: see the notes of the table")
    figure.text(0.12 / width, 1 - 0.52 / height, " · ".join(about), fontsize=8, color=FAINT)
    command = str(document.get("command", ""))
    most = int(width * 17)  # of so small a type
    command = command if len(command) <= most else command[: most - 1] + "…"
    figure.text(0.12 / width, 0.09 / height, command, fontsize=6.5, color=FAINT, family="monospace")
    return figure


def plain(axes: Any, label: str = "") -> None:
    """Quiet axes: no frame, a faint grid along x."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(which="both", colors=FAINT, length=0, labelsize=8)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(label, color=FAINT, fontsize=8)


def count(value: float) -> str:
    """Three digits and a unit: `12.3 M`."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def bars(
    axes: Any,
    rows: Sequence[Row],
    names: Sequence[str],
    colors: Sequence[str],
    label: Callable[[Row], str] = lambda row: count(row["steps_per_s"]),
    *,
    log: bool | None = None,
) -> None:
    """Horizontal bars of steps/s, the first on top, each with its spread and its figure.

    Args:
        rows: with "failed" in place of figures: the word stands where the bar would be.
        log: None: where the smallest would not be seen otherwise.
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
        style = {"va": "center", "fontsize": 8, "color": INK if at else FAINT}
        axes.annotate(text, (at or speed, i), (6, 0), textcoords="offset points", **style)
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    plain(axes, "agent steps a second" + (", logarithmic" if wide else ""))
    if wide:
        axes.set_xscale("log")
        axes.set_xlim(lowest / 2, highest * (highest / lowest) ** 0.3)
    else:
        axes.set_xlim(0, highest * 1.32)
    axes.xaxis.set_major_formatter(lambda value, _: count(value) if value else "0")
    axes.xaxis.set_minor_formatter(lambda value, _: "")


def draw_ladder(document: Row) -> Any:
    """Steps from one setting to the other, and the time to a return beside them."""
    rows = document["rows"]
    timed = any("to_return" in row for row in rows)
    total = rows[-1].get("total", {"value": 1.0})["value"]
    width, height = (11.5 if timed else 9.5), 1.5 + 1.35 * ROW * len(rows)
    figure = sheet(document, f"What each change brings: {total:.2f} times in all", width, height)
    axes = figure.subplots(
        1, 2 if timed else 1, width_ratios=(3, 2) if timed else None, sharey=True, squeeze=False
    )[0]
    colors = []
    for row in rows:
        gain = row.get("gain")
        sure = gain and not row.get("reckoned") and (gain["low"] > 1 or gain["high"] < 1)
        colors.append((GREEN if gain["value"] > 1 else RED) if sure else GREY)

    def label(row: Row) -> str:
        words = count(row["steps_per_s"])
        return words + (f"   × {row['gain']['value']:.2f}" if "gain" in row else "")

    bars(axes[0], rows, [_step_name(row) for row in rows], colors, label)
    axes[0].tick_params(axis="y", labelsize=8)
    axes[0].set_title(
        "× the step before; green faster, red slower, grey not sure; hatched: reckoned",
        fontsize=8,
        color=FAINT,
        loc="left",
    )
    if timed:
        _to_return(axes[1], rows)
    return figure


def _step_name(row: Row) -> str:
    changes = [f"{path.split('.', 1)[-1]} {change}" for path, change in row["changes"].items()]
    short = [text if len(text) <= 44 else text[:43] + "…" for text in changes[:2]]
    if len(changes) > 2:
        short[-1] += f", {len(changes) - 2} more"
    return "\n".join([row["name"], *short])


def _to_return(axes: Any, rows: Sequence[Row]) -> None:
    """Seconds to the stated return; an empty bar where it was not reached."""
    found = [row.get("to_return") for row in rows]
    longest = max(one["seconds"] for one in found if one)
    for i, one in enumerate(found):
        if one is None:
            continue
        face = BLUE if one["reached"] else "#f1f3f5"
        axes.barh(i, one["seconds"], 0.66, facecolor=face, edgecolor=face if one["reached"] else LINE)
        text = f"{one['seconds']:.3g} s" if one["reached"] else f"not in {one['limit']:g} s"
        axes.annotate(
            text, (one["seconds"], i), (5, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    plain(axes, "seconds")
    axes.set_xlim(0, longest * 1.35)
    target = next(one["target"] for one in found if one)
    axes.set_title(f"time to a return of {target:g}, from fresh weights", fontsize=8, color=FAINT, loc="left")


def draw_rows(document: Row) -> Any:
    """Bars of all rows; below them the phases of those that have them, and the time to a return."""
    rows = document["rows"]
    names = [_wrapped(row["name"]) for row in rows]
    split = [row for row in rows if row.get("phases")]
    timed = [row for row in rows if "to_return" in row]
    heights = [max(len(rows), 2) * ROW + 0.5]
    heights += [max(len(split), 2) * ROW + 0.75] if split else []
    heights += [max(len(timed), 2) * ROW + 0.6] if timed else []
    figure = sheet(document, _title(document), 9.5, 1.1 + sum(heights))
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    groups = list(dict.fromkeys(map(_group, rows)))
    colors = [COLORS[groups.index(_group(row)) % len(COLORS)] for row in rows]
    bars(axes[0], rows, names, colors)
    if split:
        _phases(axes[1], split)
    if timed:
        _to_return(axes[-1], timed)
        axes[-1].set_yticks(range(len(timed)), [_wrapped(row["name"]) for row in timed])
        axes[-1].set_ylim(len(timed) - 0.45, -0.55)
    return figure


def _title(document: Row) -> str:
    ratios = document.get("ratios", [])
    if len(ratios) == 1:
        one = ratios[0]
        return f"{one['name']}: {one['value']:.2f} times ({one['low']:.2f} to {one['high']:.2f})"
    return "Agent steps a second: median, slowest and fastest round"


def _group(row: Row) -> str:
    """What rows of one colour share: who is measured, or the words before the first comma or colon."""
    return row.get("peer") or row["name"].replace(":", ",").split(",")[0]


def _wrapped(name: str, most: int = 46) -> str:
    """At most two lines, cut at a space."""
    if len(name) <= most:
        return name
    at = name.rfind(" ", 0, most + 1)
    at = at if at > 0 else most
    rest = name[at:].strip()
    return f"{name[:at]}\n{rest if len(rest) <= most else rest[: most - 1] + '…'}"


def _phases(axes: Any, rows: Sequence[Row]) -> None:
    """Shares of the time, one bar a row."""
    names = list(dict.fromkeys(name for row in rows for name in row["phases"]))
    for i, row in enumerate(rows):
        total, left = sum(row["phases"].values()), 0.0
        for name in names:
            part = row["phases"].get(name, 0.0) / total if total else 0.0
            color = COLORS[names.index(name) % len(COLORS)]
            axes.barh(
                i, part, 0.66, left=left, color=color, label=name if i == 0 else None, edgecolor="white"
            )
            if part > 0.06:
                style = {"ha": "center", "va": "center", "fontsize": 7.5, "color": "white"}
                axes.text(left + part / 2, i, f"{100 * part:.0f} %", **style)
            left += part
    axes.set_yticks(range(len(rows)), [_wrapped(row["name"]) for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    plain(axes)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_xlim(0, 1)
    axes.spines["bottom"].set_visible(False)
    place = {"loc": "upper left", "bbox_to_anchor": (0, -0.02)}
    axes.legend(ncols=len(names), frameon=False, fontsize=8, handlelength=1, labelcolor=INK, **place)
    axes.set_title("where the time goes", fontsize=8, color=FAINT, loc="left")
