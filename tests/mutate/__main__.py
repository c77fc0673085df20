"""Runs the changes and reports which were found.

Each change is made in a copy of the repository in a temporary folder, where its tests must pass without it. A change
that the tests do not notice has survived: a test is missing, or the change makes no difference (`Change.known`).
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.mutate import CHANGES
from tests.mutate.change import Change
from tests.mutate.tree import ROOT, BuildError, Outcome, Tree

ENOUGH = 0.9
"""Least part of the changes that the tests have to find."""


def main(words: Sequence[str]) -> int:
    given = _parser().parse_args(words)
    changes = [change for change in CHANGES if any(text in change.name for text in given.only or [""])]
    if not changes:
        sys.exit(f"--only {' '.join(given.only)}: no change has that in its name; see --list")
    if given.list:
        for change in changes:
            print(f"{change.name}   [{change.tests}]")
        return 0
    lost = [change.name for change in changes if change.count((ROOT / change.file).read_text()) != 1]
    if lost:
        sys.exit("these changes' old text is not in the file exactly once:\n  " + "\n  ".join(lost))
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(given.jobs):
            trees.put(Tree(Path(folder) / str(number)))
        with ThreadPoolExecutor(given.jobs) as pool, _quick_end(pool):
            if not given.unchecked:
                list(
                    pool.map(
                        lambda tests: _check(trees, tests, given.timeout), sorted({c.tests for c in changes})
                    )
                )
            outcomes = list(pool.map(lambda change: _try(trees, change, given.timeout), changes))
    return _report(dict(zip(changes, outcomes)))


@contextmanager
def _quick_end(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Starts nothing more after an error."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _check(trees: queue.SimpleQueue[Tree], tests: str, timeout_s: float) -> None:
    """Raises SystemExit if tests fail without a change: they could find nothing."""
    tree = trees.get()
    try:
        outcome = tree.test(tests, timeout_s)
    finally:
        trees.put(tree)
    print(
        f"{'FAILS' if outcome.found else 'passes':9}{outcome.seconds:6.1f} s  without a change: {tests}",
        flush=True,
    )
    if outcome.found:
        raise SystemExit(f"{outcome.output}\nthese tests fail without a change ({outcome.by}): {tests}")


def _try(trees: queue.SimpleQueue[Tree], change: Change, timeout_s: float) -> Outcome:
    tree = trees.get()
    try:
        outcome = tree.test_changed(change, timeout_s)
    except BuildError as error:
        raise SystemExit(f"{error}\n{change.name}: does not compile") from error
    finally:
        trees.put(tree)
    said = "found" if outcome.found else "known" if change.known else "SURVIVED"
    print(f"{said:9}{outcome.seconds:6.1f} s  {change.name}  {outcome.by}", flush=True)
    return outcome


def _report(outcomes: dict[Change, Outcome]) -> int:
    """Prints the figures by file, and the survivors. Returns the exit code."""
    files: dict[str, list[bool]] = {}
    for change, outcome in outcomes.items():
        files.setdefault(change.file, []).append(outcome.found)
    print()
    for file, found in files.items():
        print(f"{sum(found):4} of {len(found):3}  {file}")
    survivors = [change for change, outcome in outcomes.items() if not outcome.found]
    count = len(outcomes) - len(survivors)
    print(f"{count:4} of {len(outcomes):3}  found ({count / len(outcomes):.0%})")
    for change in survivors:
        print(f"survived: {change.name}: {change.known or 'no test notices it'}  [{change.tests}]")
    return 0 if count >= ENOUGH * len(outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    found.add_argument("--list", action="store_true", help="print the changes, run nothing")
    found.add_argument(
        "--only",
        nargs="+",
        metavar="TEXT",
        help="changes with one of these texts in their file or description",
    )
    found.add_argument(
        "--jobs", type=int, default=1, help="copies of the repository to test in, side by side (default: 1)"
    )
    found.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds for a change's tests (default: 300)",
    )
    found.add_argument("--unchecked", action="store_true", help="do not run the tests without a change first")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
