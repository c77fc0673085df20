"""The scale curve as an SVG file: one panel for each quantity, bars of M steps/s with the memory under each."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from metta_fast.errors import UserError

BAR, GAP, HEIGHT, TOP, BELOW, MARGIN = 46, 14, 180, 54, 56, 24
"""Pixels: a bar's width, between bars, the tallest bar, above and below the bars, around a panel."""


def chart(title: str, rows: list[dict[str, Any]]) -> str:
    """An SVG document of the report's `scale` rows."""
    panels = [(line, list(points)) for line, points in groupby(rows, key=lambda row: row["line"])]
    most = max((row["steps_per_s"] for row in rows if "failed" not in row), default=1.0)
    width = 2 * MARGIN + max((len(points) for _, points in panels), default=1) * (BAR + GAP)
    width = max(width, 480)
    tall = TOP + HEIGHT + BELOW
    body = [f'<text x="{MARGIN}" y="24" font-size="15">{escape(title)}</text>']
    for number, (line, points) in enumerate(panels):
        body += _panel(line, points, most, 24 + number * tall)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{40 + len(panels) * tall}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _panel(line: str, points: list[dict[str, Any]], most: float, top: float) -> Iterable[str]:
    floor = top + TOP + HEIGHT
    yield f'<text x="{MARGIN}" y="{top + 24}" font-size="13">{escape(line)}: M steps/s, MiB below</text>'
    for i, row in enumerate(points):
        x = MARGIN + i * (BAR + GAP)
        middle = f'x="{x + BAR / 2}" text-anchor="middle"'
        yield f'<text {middle} y="{floor + 15}">{escape(row["value"])}</text>'
        if "failed" in row:
            yield f'<text {middle} y="{floor - 6}">failed</text>'
            continue
        tall = HEIGHT * row["steps_per_s"] / most
        yield f'<rect x="{x}" y="{floor - tall:.1f}" width="{BAR}" height="{tall:.1f}" fill="#3b6ea5"/>'
        yield f'<text {middle} y="{floor - tall - 5:.1f}">{row["steps_per_s"] / 1e6:.3g}</text>'
        if row["memory_mib"] is not None:
            yield f'<text {middle} y="{floor + 30}" fill="#666">{row["memory_mib"]:.0f}</text>'


def write(path: Path, title: str, rows: list[dict[str, Any]]) -> None:
    """Write the chart. Raises UserError where that is not possible."""
    try:
        path.write_text(chart(title, rows))
    except OSError as error:
        raise UserError(f"cannot write the chart {path}: {error.strerror}") from error
