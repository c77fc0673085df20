"""Draws the pictures of docs/benchmark.md from the figures in README and docs/gpu.md.

python docs/charts.py        # writes docs/speed.svg and docs/gpu.svg; tests/test_site.py checks that they are current
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "speed.svg"
GPU_PICTURE = ROOT / "docs" / "gpu.svg"
UNITS = {"k": 1e3, "M": 1e6}
STYLE = """\
    .plate { fill: #ffffff; } .bar { fill: #00897b; } .cpu { fill: #b26a00; } text { fill: #1d2329; font-size: 13px; }
    .grid { stroke: #d5dade; } .small { font-size: 12px; fill: #4b545d; } .title { font-size: 16px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .plate { fill: #1e2129; } .bar { fill: #4db6ac; } .cpu { fill: #e0a84a; } text { fill: #eef1f4; }
      .grid { stroke: #3a404b; } .small { fill: #b9c2cb; }
    }"""
LEFT, WIDTH, ROW, TOP = 330, 960, 34, 74
POWERS = {3: "1k", 4: "10k", 5: "100k", 6: "1M", 7: "10M", 8: "100M", 9: "1000M"}


@dataclass(frozen=True)
class Figure:
    """One bar: what was measured, where, and its steps per second."""

    what: str
    machine: str
    shown: str
    value: float


def figures(readme: str) -> list[Figure]:
    """Returns the rows of README's table whose figure begins with steps per second.

    A row's label is the part before its colon; the network and the task after it are left to README.
    """
    table = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", readme, re.MULTILINE)
    found = []
    for what, text, machine in table:
        first = re.match(r"([\d.]+)([kM]) steps/s", text)
        if first:
            shown = f"{first[1]}{first[2]}"
            label = what.replace("`", "").partition(":")[0]
            found.append(Figure(label, machine, shown, float(first[1]) * UNITS[first[2]]))
    return found


def gpu_figures(page: str) -> list[Figure]:
    """Returns the rows of docs/gpu.md's training table: each shape, and the same shape with one setting changed."""
    table = page.partition("| | M steps/s |")[2].partition("\n\n")[0]
    found, shape = [], ""
    for what, speed in re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", table, re.MULTILINE):
        shape = shape if what.startswith("`") else what.partition(",")[0]
        setting = what.startswith("`")
        name = what.replace("`", "").replace("trainer.", "")
        found.append(
            Figure(
                name,
                f"{shape}: this setting" if setting else "all on the GPU",
                f"{float(speed):.3g}M",
                float(speed) * UNITS["M"],
            )
        )
    return found


@dataclass(frozen=True)
class Sheet:
    """Title and note above the bars."""

    title: str
    note: str


SPEED = Sheet(
    "Steps per second of README's rows (a step is one action of one agent)",
    "logarithmic axis; orange: without a GPU",
)
GPU = Sheet(
    "Training on the GPU: steps per second, and with one setting changed",
    "logarithmic axis; orange: with this setting instead of the profile's",
)


def draw(rows: list[Figure], sheet: Sheet = SPEED) -> str:
    """Draws bars on a logarithmic axis, as an SVG with its own background for light and dark themes."""
    powers = [math.log10(row.value) for row in rows]
    least, most = math.floor(min(powers)), math.ceil(max(powers))
    height = TOP + ROW * len(rows) + 44

    def x(value: float) -> float:
        return LEFT + (WIDTH - 90 - LEFT) * (math.log10(value) - least) / (most - least)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">",
        "  <title>Steps per second</title>",
        f"  <style>\n{STYLE}\n  </style>",
        f'  <rect class="plate" width="{WIDTH}" height="{height}" rx="10"/>',
        f'  <text class="title" x="20" y="32">{sheet.title}</text>',
        f'  <text class="small" x="20" y="52">{sheet.note}</text>',
    ]
    for power in range(least, most + 1):
        at, name = x(10.0**power), POWERS[power]
        lines += [
            f'  <line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 8}" y2="{height - 34}"/>',
            f'  <text class="small" x="{at:.1f}" y="{height - 16}" text-anchor="middle">{name}</text>',
        ]
    for index, row in enumerate(rows):
        y = TOP + ROW * index
        label = row.what if len(row.what) <= 46 else row.what[:45].rstrip() + "…"
        kind = "cpu" if re.match(r"\d+ cores", row.machine) or "setting" in row.machine else "bar"
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
    rows = gpu_figures((ROOT / "docs" / "gpu.md").read_text(encoding="utf-8"))
    GPU_PICTURE.write_text(draw(rows, GPU), encoding="utf-8")


if __name__ == "__main__":
    main()
