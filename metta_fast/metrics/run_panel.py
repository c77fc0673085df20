"""Draws a run's newest metrics as one panel that fits a terminal of any size.

    ╭─ grid_solo-20260712-093000 ─────────────────────────────────────────────────╮
    │ 1.2M / 3M steps ━━━━━━━━━━━━━━━━────────────────────── 75.2K steps/s  left 24s │
    │ return 0.067   last 100 episodes 0.058   ▁▁▂▁▂▃▃▅▅▇█                          │
    │ time              loss                       env                             │
    │   env      34 %     entropy       3.75         hearts      0.03              │
    ╰─────────────────────────────────────────────────────────────────────────────╯

Groups of values stand in columns. Where they do not fit, empty lines go first, then the last values of the longest
group. Place in the flow: the rich dashboard (dashboard.py) and `metta-fast monitor` (watch/view.py) draw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from metta_fast.contracts.printable import one_line
from metta_fast.metrics.progress_text import NO_EPISODE, RECENT, readings, short, time_left, time_shares

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.text import Text

CURVE_POINTS = 512
"""Most points of the return curve; when reached, neighbouring points are merged in pairs."""
GROUP_ROWS = 12
"""Most values of one group."""
GAP = 3
"""Characters between two columns."""
LOW = 30
"""Lines below which a panel has no empty lines."""

_BARS = "▁▂▃▄▅▆▇█"
_HIDDEN = (
    "train/steps",
    "perf/steps_",
    "perf/first_",
    "perf/time/",
    "perf/gpu_",
    "perf/cpu_",
    "perf/memory_",
)
"""Beginnings of names that are shown elsewhere in the panel, or nowhere."""
_ABOVE = ("env/return", RECENT)
"""Names in the panel's second line."""


class Curve:
    """Keeps a sequence of values in limited space: when full, neighbours are averaged in pairs."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values: list[float] = []
        self._stride, self._sum, self._count = 1, 0.0, 0
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Appends a value."""
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self._stride:
            return
        self._values.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._values) >= CURVE_POINTS:
            pairs = zip(self._values[::2], self._values[1::2])
            self._values = [(first + second) / 2 for first, second in pairs]
            self._stride *= 2

    def bars(self, width: int) -> str:
        """Draws the whole curve in `width` characters, each the mean of its part."""
        count = len(self._values)
        if count == 0:
            return ""
        width = min(width, count)
        edges = [i * count // width for i in range(width + 1)]
        means = [sum(self._values[a:b]) / (b - a) for a, b in pairwise(edges)]
        low, span = min(means), (max(means) - min(means)) or 1.0
        return "".join(_BARS[min(int((mean - low) / span * len(_BARS)), len(_BARS) - 1)] for mean in means)


def run_panel(
    seen: dict[str, float],
    total: int,
    curve: Curve,
    *,
    title: str,
    width: int,
    height: int | None = None,
    machine: bool = True,
    slower: Sequence[str] = (),
    advice: str = "",
) -> Panel:
    """Draws a run's metrics as a rich panel of at most `height` lines.

    Args:
        seen: newest value of each name.
        total: trainer.total_timesteps.
        width, height: of the terminal's free part; height None: as many lines as it takes.
        machine: show the machine's readings.
        slower: see Dashboard.slower_without.
        advice: a line on what to change (advice.py).
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    inner = max(width - 4, 8)
    low = height is not None and height < LOW
    notes = [(f"slower without {text}", 1 if low else 6) for text in slower]
    notes += [(f"advice: {advice}", 2)] if advice else []
    below = [
        line for text, most in notes for line in _lines(Text(one_line(text), style="yellow"), inner, most)
    ]
    lines = [_progress(seen, total, inner), _return(seen, curve, inner)]
    free = None if height is None else height - 2 - len(lines)
    if free is not None:
        below = below[: max(free // 3, 1)]
        free -= len(below)
    groups = [group for group in _groups(seen, machine=machine) if group.rows]
    lines += arrange(groups, inner, free, loose=not low)
    lines += below
    if height is not None:
        lines = lines[: max(height - 2, 1)]
    return Panel(Group(*lines), title=Text(one_line(title)), title_align="left", width=width)


def _lines(text: Text, width: int, most: int) -> list[Text]:
    """Wraps a text to at most `most` lines; the last one ends in `…` if there would be more."""
    from rich.console import Console

    found = list(text.wrap(Console(width=width), width))
    if len(found) > most:
        found[most - 1].truncate(width - 1, overflow="crop")
        found[most - 1].append("…")
    return found[:most]


def _progress(seen: dict[str, float], total: int, width: int) -> Text:
    """Draws the first line: steps, progress bar, speed, time left."""
    from rich.text import Text

    steps = seen.get("train/steps", 0.0)
    left = f"{short(steps)} / {short(total)} steps"
    speed = f"{short(seen.get('perf/steps_per_second', 0.0))} steps/s"
    right = f"{speed}  left {time_left(seen, total)}"
    if len(left) + len(right) + 2 > width:
        right = speed
    bar = width - len(left) - len(right) - 4
    full = round(bar * min(steps / max(total, 1), 1.0)) if bar >= 4 else 0
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(left, style="bold")
    if bar >= 4:
        line.append("  " + "━" * full, style="green").append("─" * (bar - full) + "  ", style="bright_black")
    else:
        line.append(" " * max(width - len(left) - len(right), 2))
    return line.append(right)


def _return(seen: dict[str, float], curve: Curve, width: int) -> Text:
    """Draws the second line: the last epoch's return, the mean of the last episodes, the curve."""
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis", style="bold")
    line.append(f"return {short(seen['env/return'])}" if "env/return" in seen else f"return - ({NO_EPISODE})")
    if RECENT in seen:
        words = "last 100 episodes" if width >= 60 else "last 100"
        line.append(f"   {words} {short(seen[RECENT])}")
    room = width - len(line) - 3
    if room > 3:
        line.append("   " + curve.bars(room), style="not bold green")
    return line


@dataclass
class Group:
    """Values shown together: (label, text) of each."""

    name: str
    rows: list[tuple[str, str]]

    @property
    def width(self) -> int:
        return max(len(self.name), self.labels + 2 + self.texts)

    @property
    def labels(self) -> int:
        return 2 + max(len(label) for label, _ in self.rows)

    @property
    def texts(self) -> int:
        return max(len(text) for _, text in self.rows)

    def draw(self) -> Iterator[Text]:
        """Yields the heading and a line for each value."""
        from rich.text import Text

        labels, texts = self.labels, self.texts
        yield Text(self.name, style="italic")
        for label, text in self.rows:
            yield Text(f"  {label:<{labels - 2}}", style="cyan").append(f"  {text:>{texts}}", style="default")


def _groups(seen: dict[str, float], *, machine: bool) -> list[Group]:
    """Returns the groups of values: time, loss, env, run, machine."""
    found = [
        Group("time", [(phase, f"{100 * share:.0f} %") for phase, share in time_shares(seen).items()]),
        Group("loss", _figures(seen, "loss/")),
        Group("env", _figures(seen, "env/", "eval/")),
        Group("run", _figures(seen, "train/", "perf/")),
        Group("machine", readings(seen) if machine else []),
    ]
    return [
        Group(group.name, [(one_line(label), text) for label, text in group.rows[:GROUP_ROWS]])
        for group in found
    ]


def _figures(seen: dict[str, float], *prefixes: str) -> list[tuple[str, str]]:
    """Returns (label, text) of the values whose names start with one of `prefixes` and are not shown elsewhere."""
    return [
        (_label(key), short(value))
        for key, value in sorted(seen.items())
        if key.startswith(prefixes) and not key.startswith(_HIDDEN) and key not in _ABOVE
    ]


def _label(key: str) -> str:
    place, _, name = key.partition("/")
    return ("evaluation " if place == "eval" else "") + name.replace("_", " ")


# ── columns ──


def arrange(groups: Sequence[Group], width: int, height: int | None, *, loose: bool) -> list[Text]:
    """Draws groups side by side and below each other, in their order, on at most `height` lines of `width` characters.

    Args:
        height: None: as many lines as it takes.
        loose: with an empty line between two groups and above all, if there is room.
    """
    groups = [Group(group.name, list(group.rows)) for group in groups]
    while groups and (height is None or height > 1):
        gaps = (1, 0) if loose else (0,)
        for gap in gaps:
            columns = _columns(groups, width, gap)
            lines = max(_height(column, gap) for column in columns) + gap
            if height is None or lines <= height:
                return _drawn(columns, width, gap)
        tallest = max(columns, key=lambda column: _height(column, 0))
        longest = max(tallest, key=lambda group: len(group.rows))
        longest.rows.pop()
        groups = [group for group in groups if group.rows]
    return []


def _height(column: Sequence[Group], gap: int) -> int:
    return sum(1 + len(group.rows) for group in column) + gap * (len(column) - 1)


def _width(column: Sequence[Group]) -> int:
    return max(group.width for group in column)


def _columns(groups: Sequence[Group], width: int, gap: int) -> list[Sequence[Group]]:
    """Returns the division into columns with the fewest lines that fits the width, else one column."""
    best: list[Sequence[Group]] = [groups]
    places = range(1, len(groups))
    for count in range(len(groups)):
        for cuts in combinations(places, count):
            columns = [groups[a:b] for a, b in pairwise((0, *cuts, len(groups)))]
            if sum(map(_width, columns)) + GAP * count > width:
                continue
            if max(_height(c, gap) for c in columns) < max(_height(c, gap) for c in best):
                best = columns
    return best


def _drawn(columns: Sequence[Sequence[Group]], width: int, gap: int) -> list[Text]:
    from rich.text import Text

    drawn = []
    for column in columns:
        lines: list[Text] = []
        for group in column:
            lines += [Text("")] * (gap if lines else 0)
            lines += group.draw()
        drawn.append(lines)
    found = [Text("")] * gap
    for number in range(max(map(len, drawn))):
        line, start = Text(no_wrap=True, overflow="ellipsis"), 0
        for column, lines in zip(columns, drawn):
            cell = lines[number] if number < len(lines) else Text("")
            line.append(" " * (start - len(line))).append_text(cell)
            start += _width(column) + GAP
        line.truncate(width, overflow="ellipsis")
        found.append(line)
    return found
