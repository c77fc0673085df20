"""Draws `metta-fast monitor`: a screen of two rich panels, or plain lines.

Place in the flow: command.py polls the state, then calls `screen` or `plain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metta_fast.config.keys import RunConfig
from metta_fast.contracts.printable import one_line
from metta_fast.machine import hardware
from metta_fast.metrics.advice import advice
from metta_fast.metrics.progress_text import line, reading, readings
from metta_fast.metrics.run_panel import run_panel

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.panel import Panel
    from rich.text import Text

    from metta_fast.watch.state import Watch

COLUMNS = {
    "memory": "GPU memory",
    "power": "GPU power",
    "SM / memory": "GPU clocks",
    "heat": "GPU heat",
}
"""Heading of the machine's table → label of the reading."""
BAR = 20
"""Characters of a bar on a wide terminal."""


def plain(watch: Watch) -> str:
    """Formats the state as plain lines, for a pipe or a log."""
    machine, run = watch.machine, watch.run
    lines = []
    for number, (card, row) in enumerate(zip(machine.cards, machine.rows)):
        lines.append(f"GPU {number}    {card.name}: {_words(row)}")
    lines += [f"GPU      {machine.note}"] if machine.note else []
    lines.append(f"machine  {_words(machine.host)}")
    if run is None:
        return "\n".join([*lines, f"run      {_no_run()}"])
    lines.append(f"run      {run.folder.path}: {run.state}")
    if run.readings:
        lines.append(f"         {_words(run.readings)} of the allowed {hardware.allowed_cores()} cores")
    if run.metrics.seen:
        lines.append(f"         {line(run.metrics.seen, run.total)}")
    if run.training and (told := advice(run.metrics.seen)):
        lines.append(f"         advice: {told}")
    return "\n".join(lines)


def screen(watch: Watch, width: int, height: int) -> Group:
    """Draws the machine's panel above the run's."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    run = watch.run
    machine, lines = _machine_panel(watch, width)
    parts: list[RenderableType] = [machine]
    if run is None:
        parts.append(Panel(Text(_no_run()), title="no run", title_align="left"))
    elif not run.metrics.seen:
        parts.append(
            Panel(Text(one_line(run.state)), title=_escaped(str(run.folder.path)), title_align="left")
        )
    else:
        shown = run_panel(
            run.metrics.seen,
            run.total,
            run.metrics.curve,
            title=run.folder.name,
            width=width,
            height=max(height - lines, 4),
            machine=False,
            advice=run.advisor.line() if run.training else "",
        )
        shown.subtitle, shown.subtitle_align = _escaped(run.state), "left"
        parts.append(shown)
    return Group(*parts)


def _machine_panel(watch: Watch, width: int) -> tuple[Panel, int]:
    """Returns the machine's panel and its number of lines."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    machine, run = watch.machine, watch.run
    bar = BAR if width >= 110 else 8 if width >= 90 else 0
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", style="cyan", no_wrap=True)
    table.add_column("busy", no_wrap=True)
    headings = COLUMNS if machine.cards else {"memory": ""}
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="right")
    for number, row in enumerate(machine.rows):
        cells = [reading(row, label) or "-" for label in headings.values()]
        table.add_row(f"GPU {number}", _bar(row.get("perf/gpu_utilization"), bar), *cells)
    for label, row in (("CPU", machine.host), ("this run", run.readings if run else {})):
        if row:
            table.add_row(label, _bar(row["perf/cpu_utilization"], bar), reading(row, "memory"))
    parts: list[RenderableType] = [table]
    if machine.note:
        parts.append(Text(machine.note, style="yellow", no_wrap=True, overflow="ellipsis"))
    names = [f"{count} × {name}" if count > 1 else name for name, count in Counter(_names(watch)).items()]
    title = " · ".join([*names, f"{hardware.allowed_cores()} cores"])
    lines = 2 + 1 + table.row_count + len(parts) - 1
    return Panel(Group(*parts), title=_escaped(title), title_align="left"), lines


def _names(watch: Watch) -> Iterator[str]:
    return (card.name for card in watch.machine.cards)


def _bar(percent: float | None, width: int) -> Text:
    """Draws `━━━━━━────  61 %`; width 0: the number only."""
    from rich.text import Text

    if percent is None:
        return Text("-")
    full = round(min(max(percent, 0.0), 100.0) / 100 * width)
    text = Text("━" * full, style="green")
    text.append("─" * (width - full), style="bright_black")
    text.append(f" {percent:3.0f} %", style="default")
    return text


def _words(row: dict[str, float]) -> str:
    return ", ".join(f"{label.removeprefix('GPU ')} {text}" for label, text in readings(row))


def _no_run() -> str:
    return f"none in {RunConfig().dir}/ yet; give a run's folder: metta-fast monitor RUN"


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(one_line(text))
