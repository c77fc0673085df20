"""`metta-fast monitor`: the machine and a run's newest figures, live, from a second terminal.

    metta-fast monitor                  # the run last written to in runs/, and the ones that come after it
    metta-fast monitor runs/<name>      # that run, by folder or name; of a folder of runs the newest
    metta-fast monitor --once           # print once, in plain lines (also where the output is no terminal)

It only reads: the run's files, the operating system and the NVIDIA driver; the training does not notice.
Ctrl-C ends it, the run goes on.

Place in the flow: cli.py calls `run_monitor_command`. Its panels come from watch_view.py.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence

from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.watch.state import Watch


def run_monitor_command(words: Sequence[str]) -> int:
    """`metta-fast monitor`; 0, or UserError."""
    from metta_fast.watch.view import plain, screen

    given = _parser().parse_args(words)
    if not 0.1 <= given.interval <= 3600:
        raise UserError(f"--interval {given.interval:g}: expected seconds, 0.1 … 3600")
    watch = Watch(given.run)
    if given.once or not sys.stdout.isatty():
        watch.poll()
        time.sleep(1.0)  # utilisation is the mean of a second
        watch.poll()
        print(plain(watch))
        return 0
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, screen=True) as live,
    ):
        pause = min(given.interval, 0.2)  # the first figures of use are soon there
        while True:
            watch.poll()
            live.update(screen(watch, console.width, console.height), refresh=True)
            time.sleep(pause)
            pause = given.interval
    return 0


def _parser() -> argparse.ArgumentParser:
    found = OptionParser(
        prog="metta-fast monitor",
        description="The machine and a run's newest figures, live. Ctrl-C ends it; the run goes on.",
    )
    found.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="a run's folder or name, or a folder of runs (default: the newest in runs/)",
    )
    found.add_argument(
        "--once", action="store_true", help="print once in plain lines (also if the output is no terminal)"
    )
    found.add_argument(
        "--interval", type=float, default=1.0, help="seconds from one look to the next (default: 1)"
    )
    return found
