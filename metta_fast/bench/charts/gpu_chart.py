"""Draws the results of `--gpu` and `--gpu-scale`: training, parts of an epoch, the engine alone, speed by size.

Panels are drawn for the results that the document (gpu/report.py) contains; a failed case shows the word "failed".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from metta_fast.bench.charts.drawing import (
    BLUE,
    COLORS,
    FAINT,
    GREEN,
    GREY,
    INK,
    LINE,
    ROW,
    Row,
    bars,
    count,
    plain,
    sheet,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = {"ours": BLUE, "compiled": GREEN, "eager": GREY}
"""Form of a part of an epoch (gpu/parts.py) → its colour."""
PALE = "#b9c2cb"
LINES_HEIGHT = 2.6
"""Inches of the panels of speed by size."""


def draw_gpu(document: Row) -> Figure:
    """Draws a GpuReport's document."""
    panels: list[tuple[float, Callable[[Axes], None]]] = []
    training = [row for shape in document["training"] for row in _shape_rows(shape)]
    if training:
        panels.append((_bars_height(training), partial(_training, rows=training)))
    for run in document["parts"]:
        if run.get("parts"):
            panels.append((len(run["parts"]) * ROW * 1.25 + 0.7, partial(_parts, run=run)))
    if document["simulator"]:
        simulator = document["simulator"]
        panels.append((_bars_height(simulator), partial(_simulator, rows=simulator)))
    lines = [(name, list(points)) for name, points in groupby(document["scale"], key=lambda row: row["line"])]
    heights = [height for height, _ in panels] + ([LINES_HEIGHT] if lines else [])
    best = max(
        (row["steps_per_s"] for row in training + document["scale"] if "failed" not in row), default=0.0
    )
    title = (
        f"All on the GPU: up to {count(best)} agent steps per second in training"
        if best
        else "All on the GPU"
    )
    figure = sheet(document, title, 11.0, 1.1 + sum(heights))
    rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (_, draw) in zip(rows, panels, strict=False):
        draw(part.subplots())
    if lines:
        most = max((row["high"] for _, points in lines for row in points if "failed" not in row), default=1.0)
        widths = [max(len(points), 3) for _, points in lines]
        for axes, (name, points) in zip(
            rows[-1].subplots(1, len(lines), sharey=True, width_ratios=widths, squeeze=False)[0],
            lines,
            strict=True,
        ):
            _line(axes, name, points, most)
    return figure


def _shape_rows(shape: Row) -> list[Row]:
    """Returns a shape and the overrides it is compared with, as rows with `label` and `group`."""
    others = [row | {"label": f"  {row['name']}", "group": shape["name"]} for row in shape["against"]]
    return [shape | {"label": shape["name"], "group": shape["name"]}, *others]


def _bars_height(rows: Sequence[Row]) -> float:
    return len(rows) * ROW * 0.85 + 0.75


def _training(axes: Axes, rows: Sequence[Row]) -> None:
    groups = list(dict.fromkeys(row["group"] for row in rows))
    colors = [
        COLORS[groups.index(row["group"]) % len(COLORS)] if row["label"] == row["group"] else PALE
        for row in rows
    ]
    bars(axes, rows, [row["label"] for row in rows], colors, log=False)
    axes.set_title(
        "training, end to end (pale: with one setting changed)", fontsize=9.5, color=INK, loc="left"
    )


def _simulator(axes: Axes, rows: Sequence[Row]) -> None:
    bars(axes, rows, [row["name"] for row in rows], [BLUE] * len(rows), log=False)
    axes.set_title("the engine alone", fontsize=9.5, color=INK, loc="left")


def _parts(axes: Axes, run: Row) -> None:
    """Draws the microseconds of each part in each form, side by side."""
    parts = run["parts"]
    tall = 0.8 / len(FORMS)
    for i, part in enumerate(parts):
        for k, (form, color) in enumerate(FORMS.items()):
            if form in part["us"]:
                at = i + (k - (len(FORMS) - 1) / 2) * tall
                axes.barh(at, part["us"][form], tall, color=color, label=form if i == 0 else None)
                axes.annotate(
                    f"{part['us'][form]:.3g}", (part["us"][form], at), (4, 0), textcoords="offset points",
                    va="center", fontsize=6.5, color=INK,
                )  # fmt: skip
    axes.set_yticks(range(len(parts)), [part["name"] for part in parts])
    axes.set_ylim(len(parts) - 0.45, -0.55)
    plain(axes, "µs per call, logarithmic")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), handlelength=1)
    axes.set_title(f"parts of an epoch: {run['run']}", fontsize=9.5, color=INK, loc="left")


def _line(axes: Axes, name: str, points: Sequence[Row], most: float) -> None:
    """Draws speed by one quantity: the median with the band of single epochs, and the memory below."""
    good = [(i, row) for i, row in enumerate(points) if "failed" not in row]
    at = [i for i, _ in good]
    axes.fill_between(
        at, [r["low"] for _, r in good], [r["high"] for _, r in good], color=BLUE, alpha=0.15, linewidth=0
    )
    axes.plot(at, [r["steps_per_s"] for _, r in good], "o-", color=BLUE, markersize=4, linewidth=1.5)
    labels = []
    for i, row in enumerate(points):
        memory = row.get("memory_mib")
        labels.append(row["value"] + (f"\n{memory:.0f}" if memory is not None else "\n"))
        if "failed" in row:
            axes.annotate(
                "failed", (i, 0), (0, 4), textcoords="offset points", ha="center", fontsize=7, color=FAINT
            )
        else:
            axes.annotate(
                f"{row['steps_per_s'] / 1e6:.3g}", (i, row["steps_per_s"]), (0, 6), textcoords="offset points",
                ha="center", fontsize=7, color=INK,
            )  # fmt: skip
    plain(axes, f"{name}; MiB below")
    axes.set_xticks(range(len(points)), labels, fontsize=7)
    axes.set_xlim(-0.5, len(points) - 0.5)
    axes.set_ylim(0, 1.12 * most)
    axes.grid(axis="x", visible=False)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.yaxis.set_major_formatter(lambda value, _: count(value) if value else "0")
    axes.set_title(f"by {name}", fontsize=9.5, color=INK, loc="left")
