"""`metta-fast monitor`: shows the machine and a run's newest metrics, live, in a second terminal.

    metta-fast monitor                  # the newest run in runs/; switches to newer runs as they start
    metta-fast monitor runs/<name>      # one run by folder or name; for a folder of runs, the newest in it
    metta-fast monitor --once           # print once in plain lines (also if the output is not a terminal)

It only reads the run's files, the operating system and the NVIDIA driver, so it does not disturb the training.
Ctrl-C ends the monitor; the run continues.

Place in the flow: cli.py calls `run_monitor_command`; view.py draws.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence

from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.printable import printable
from metta_fast.watch.state import Watch


def run_monitor_command(words: Sequence[str]) -> int:
    """Runs `metta-fast monitor` and returns 0.

    Raises:
        UserError: an option is out of range, or the run does not exist.
    """
    from metta_fast.watch.view import plain, screen

    given = parser().parse_args(words)
    if not 0.1 <= given.interval <= 3600:
        raise UserError(f"--interval {given.interval:g}: expected seconds from 0.1 to 3600")
    watch = Watch(given.run)
    if given.once or not sys.stdout.isatty():
        watch.poll()
        time.sleep(1.0)  # utilisation is a mean over one second
        watch.poll()
        print(printable(plain(watch)))
        return 0
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, screen=True) as live,
    ):
        pause = min(given.interval, 0.2)  # the first utilisation appears early
        while True:
            watch.poll()
            live.update(screen(watch, console.width, console.height), refresh=True)
            time.sleep(pause)
            pause = given.interval
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast monitor",
        description="Show the machine and a run's newest metrics, live. Ctrl-C ends the monitor; the run continues.",
    )
    found.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="a run's folder or name, or a folder of runs (default: the newest in runs/)",
    )
    found.add_argument(
        "--once",
        action="store_true",
        help="print once in plain lines (automatic if the output is not a terminal)",
    )
    found.add_argument("--interval", type=float, default=1.0, help="seconds between two updates (default: 1)")
    return found
