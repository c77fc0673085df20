"""Draws results as a chart: `--plot FILE`, right after measuring or from a JSON file (`--from FILE`).

    draw(document, Path("speed.png"))      # the document of report.py, ablate.py or gpu/report.py

    "training" in it  ─► gpu_chart.py        rows with `changes` ─► the ladder        else ─► bars, phases below

matplotlib (extra `bench`) is imported only for drawing, and opens no windows. The file's suffix chooses .png, .svg or
.pdf.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metta_fast.bench.charts.drawing import (
    BLUE,
    COLORS,
    DPI,
    FAINT,
    GREEN,
    GREY,
    INK,
    LINE,
    RED,
    ROW,
    Row,
    bars,
    count,
    headline,
    plain,
    sheet,
    wrapped,
)
from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import install_packages
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.user_files import check_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Checks that the chart can be written. Raises UserError: no matplotlib, no such folder, an unknown suffix."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--plot {path}: expected a name that ends in {', '.join(KINDS)}")
    check_output(path, f"--plot {path}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            f"--plot needs matplotlib: {install_packages('matplotlib')}; results written with --json can be drawn "
            "later, also on another machine: --from FILE --plot FILE"
        )


def draw(document: Row, path: Path) -> None:
    """Draws a report's JSON document. Raises UserError: it has no results, or the file cannot be written."""
    if any(document.get(name) for name in ("training", "parts", "simulator", "scale")):
        from metta_fast.bench.charts.gpu_chart import draw_gpu

        figure = draw_gpu(document)
    elif not document.get("rows"):
        raise UserError("there are no results to draw")
    elif any("changes" in row for row in document["rows"]):
        figure = draw_ladder(document)
    else:
        figure = draw_rows(document)
    try:
        with whole(path) as beside:
            figure.savefig(beside, dpi=DPI, facecolor="white")
    except OSError as error:
        raise UserError(f"cannot write --plot {path}: {error.strerror}") from error


def draw_ladder(document: Row) -> Figure:
    """Draws the steps from one setting to the other, and the time to a return next to them."""
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
        "× the previous step; green: faster, red: slower, grey: unclear; hatched: estimated",
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


def _to_return(axes: Axes, rows: Sequence[Row]) -> None:
    """Draws the seconds to the target return; an empty bar if it was not reached."""
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


def draw_rows(document: Row) -> Figure:
    """Draws bars of all rows; below them phases and the time to a return, for rows that have them."""
    rows = document["rows"]
    names = [wrapped(row["name"]) for row in rows]
    split = [row for row in rows if row.get("phases")]
    timed = [row for row in rows if "to_return" in row]
    heights = [max(len(rows), 2) * ROW + 0.5]
    heights += [max(len(split), 2) * ROW + 0.75] if split else []
    heights += [max(len(timed), 2) * ROW + 0.6] if timed else []
    figure = sheet(document, headline(document), 9.5, 1.1 + sum(heights))
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    groups = list(dict.fromkeys(map(_group, rows)))
    colors = [COLORS[groups.index(_group(row)) % len(COLORS)] for row in rows]
    bars(axes[0], rows, names, colors)
    if split:
        _phases(axes[1], split)
    if timed:
        _to_return(axes[-1], timed)
        axes[-1].set_yticks(range(len(timed)), [wrapped(row["name"]) for row in timed])
        axes[-1].set_ylim(len(timed) - 0.45, -0.55)
    return figure


def _group(row: Row) -> str:
    """Returns the key of a row's colour: its peer, or the words before the first comma or colon of its name."""
    return row.get("peer") or row["name"].replace(":", ",").split(",")[0]


def _phases(axes: Axes, rows: Sequence[Row]) -> None:
    """Draws the phases' shares of the time, one bar per row."""
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
                style: Row = {"ha": "center", "va": "center", "fontsize": 7.5, "color": "white"}
                axes.text(left + part / 2, i, f"{100 * part:.0f} %", **style)
            left += part
    axes.set_yticks(range(len(rows)), [wrapped(row["name"]) for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    plain(axes)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_xlim(0, 1)
    axes.spines["bottom"].set_visible(False)
    place: Row = {"loc": "upper left", "bbox_to_anchor": (0, -0.02)}
    axes.legend(ncols=len(names), frameon=False, fontsize=8, handlelength=1, labelcolor=INK, **place)
    axes.set_title("where the time goes", fontsize=8, color=FAINT, loc="left")
