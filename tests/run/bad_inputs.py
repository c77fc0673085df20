"""Gives every command hundreds of mistakes, and checks the answers: one message that names the value, exit code 2.

    python -m tests.run.bad_inputs                       # all, in a few minutes
    python -m tests.run.bad_inputs --only train --jobs 2
    python -m tests.run.bad_inputs --sample 40           # some of each table
    python -m tests.run.bad_inputs --only 'torch_threads' --show

An answer is wrong if it has a traceback, another exit code, no message, a message that does not name the value or runs
over many lines, or if the command crashes or hangs. The tables are in tests/run/bad/. Ends with 1 if any is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.run.bad import batched, c_envs, commands, files, keys, machine, params, places, remote, training
from tests.run.bad.case import Case, judge, run

TABLES = {
    "keys": keys.cases,
    "train": training.cases,
    "commands": commands.cases,
    "params": params.cases,
    "files": files.cases,
    "machine": machine.cases,
    "c": c_envs.cases,
    "batched": batched.cases,
    "remote": remote.cases,
}


def all_cases() -> list[tuple[str, Case]]:
    """Returns every case, with the name of its table."""
    return [(name, case) for name, table in TABLES.items() for case in table()]


def sample(found: Sequence[tuple[str, Case]], count: int) -> list[tuple[str, Case]]:
    """Returns about `count` cases, the same share of each table at even distances."""
    step = max(1, len(found) // count)
    return list(found[step // 2 :: step])


def warm() -> None:
    """Imports what a command would import, so that each case does not."""
    import metta_fast.bench.main
    import metta_fast.cli
    import metta_fast.episodes.command
    import metta_fast.export.main
    import metta_fast.inference.evaluate
    import metta_fast.resolve.explain
    import metta_fast.run.trainer
    import metta_fast.watch.view  # noqa: F401


def main(words: Sequence[str] | None = None) -> int:
    """Runs the cases; returns 1 if any is answered wrongly."""
    parser = argparse.ArgumentParser(prog="bad_inputs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose table or words hold this text")
    parser.add_argument("--sample", type=int, help="about so many cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--show", action="store_true", help="print every answer")
    given = parser.parse_args(words)
    found = [pair for pair in all_cases() if given.only in f"{pair[0]}: {pair[1]}"]
    if given.sample:
        found = sample(found, given.sample)
    sys.stdout.reconfigure(errors="backslashreplace")
    warm()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bad_inputs_") as folder:
        os.chmod(folder, 0o777)
        there = places.make(Path(folder))
        code = _share(found, Path(folder), there, given.jobs, given.show)
    print(f"{len(found)} cases in {time.monotonic() - begin:.0f} s: {'some wrong' if code else 'all right'}")
    return code


def _share(
    found: Sequence[tuple[str, Case]], folder: Path, there: dict[str, str], jobs: int, show: bool
) -> int:
    """Runs each jobs-th case in a process of its own. Returns 1 if any is wrong."""
    children = []
    for job in range(jobs):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = places.copied(folder, there, f"runs{job}")  # a run is locked while a case resumes it
                code = _report(found[job::jobs], folder / f"job{job}", own, show)
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return int(any(codes))


def _report(found: Sequence[tuple[str, Case]], folder: Path, there: dict[str, str], show: bool) -> int:
    """Prints the wrong answers of some cases. Returns 1 if there are any."""
    count: Counter[str] = Counter()
    for number, (table, case) in enumerate(found):
        answer = run(case, folder / str(number), there)
        verdict = judge(case, answer)
        if verdict is None and not show:
            continue
        said = (answer.err.strip() or answer.out.strip())[-1200:]
        print(
            f"── {table}: {case}\n   {verdict or 'right'} (exit code {answer.code}, {answer.seconds:.1f} s)\n{said}"
        )
        if verdict is not None:
            count[verdict.partition(":")[0]] += 1
    if count:
        print("wrong:", ", ".join(f"{number} {kind}" for kind, number in count.most_common()))
    return int(bool(count))


if __name__ == "__main__":
    sys.exit(main())
