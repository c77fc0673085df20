"""The pictures of docs/benchmark.md, drawn from the figures that stand in README.

python docs/charts.py        # writes docs/speed.svg again; tests/test_site.py says when that is due
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "speed.svg"
UNITS = {"k": 1e3, "M": 1e6}
STYLE = """\
    .plate { fill: #ffffff; } .bar { fill: #00897b; } .cpu { fill: #b26a00; } text { fill: #1d2329; font-size: 13px; }
    .grid { stroke: #d5dade; } .small { font-size: 12px; fill: #4b545d; } .title { font-size: 16px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .plate { fill: #1e2129; } .bar { fill: #4db6ac; } .cpu { fill: #e0a84a; } text { fill: #eef1f4; }
      .grid { stroke: #3a404b; } .small { fill: #b9c2cb; }
    }"""
LEFT, WIDTH, ROW, TOP = 330, 960, 34, 74
LEAST, MOST = 4, 9
"""Powers of ten at both ends of the axis, in steps a second."""


@dataclass(frozen=True)
class Figure:
    """One bar: what was measured, where, and its steps a second (one for each setting named)."""

    what: str
    machine: str
    shown: str
    value: float


def figures(readme: str) -> list[Figure]:
    """The rows of README's table whose figure begins with steps a second."""
    table = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", readme, re.MULTILINE)
    found = []
    for what, text, machine in table:
        first = re.match(r"([\d.]+)([kM]) steps/s", text)
        if first:
            shown = f"{first[1]}{first[2]}"
            found.append(Figure(what.replace("`", ""), machine, shown, float(first[1]) * UNITS[first[2]]))
    return found


def draw(rows: list[Figure]) -> str:
    """Bars on a logarithmic axis, as SVG that brings its own ground for light and dark."""
    height = TOP + ROW * len(rows) + 44

    def x(value: float) -> float:
        return LEFT + (WIDTH - 90 - LEFT) * (math.log10(value) - LEAST) / (MOST - LEAST)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">",
        "  <title>Steps a second</title>",
        f"  <style>\n{STYLE}\n  </style>",
        f'  <rect class="plate" width="{WIDTH}" height="{height}" rx="10"/>',
        '  <text class="title" x="20" y="32">Steps a second: actions of one agent, all work of the row included</text>',
        '  <text class="small" x="20" y="52">logarithmic axis; orange: without a GPU</text>',
    ]
    for power in range(LEAST, MOST + 1):
        at = x(10.0**power)
        name = {4: "10k", 5: "100k", 6: "1M", 7: "10M", 8: "100M", 9: "1000M"}[power]
        lines += [
            f'  <line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 8}" y2="{height - 34}"/>',
            f'  <text class="small" x="{at:.1f}" y="{height - 16}" text-anchor="middle">{name}</text>',
        ]
    for index, row in enumerate(rows):
        y = TOP + ROW * index
        label = row.what if len(row.what) <= 46 else row.what[:45].rstrip() + "…"
        kind = "cpu" if "cores" in row.machine else "bar"
        lines += [
            f'  <text x="{LEFT - 12}" y="{y + 11}" text-anchor="end">{escape(label)}</text>',
            f'  <text class="small" x="{LEFT - 12}" y="{y + 26}" text-anchor="end">{escape(row.machine)}</text>',
            f'  <rect class="{kind}" x="{LEFT}" y="{y}" width="{x(row.value) - LEFT:.1f}" height="22" rx="3"/>',
            f'  <text x="{x(row.value) + 8:.1f}" y="{y + 16}">{row.shown}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    rows = figures((ROOT / "README.md").read_text(encoding="utf-8"))
    PICTURE.write_text(draw(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
