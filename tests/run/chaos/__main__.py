"""Breaks short trainings wherever they change a file, or at random moments, and checks that nothing is lost.

    python -m tests.run.chaos                            # each kind of training, each way, each point: hours
    python -m tests.run.chaos grid sac --modes kill      # a SIGKILL at each point
    python -m tests.run.chaos --ways 1                   # each sort of point once, as the tests do
    python -m tests.run.chaos --random 50 --seed 1       # 50 kills of each kind, at random moments

Ways (faults.c): kill, SIGKILL before the point; half, SIGKILL after half of a write; power, SIGKILL and what was not
flushed is lost; once, the call fails with EIO; full, from the point on the disk is full (ENOSPC). `--resumed` breaks
sessions that continue a killed run, instead of first sessions. After each, the run continues and must end with the
weights, optimizer, environments, buffers and metrics of the undisturbed run, bit for bit. Ends with 1 if one does not.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.run.chaos.faults import MODES, VARIABLE, Point, build

WAYS = tuple(MODES)[1:]
KIND_NAMES = ("grid", "python", "sac", "ant", "workers")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.run.chaos", description=__doc__.splitlines()[0])
    made.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KIND_NAMES))
    made.add_argument("--modes", nargs="+", choices=WAYS, default=WAYS)
    made.add_argument("--resumed", action="store_true", help="break a session that continues a killed run")
    made.add_argument(
        "--ways", type=int, default=0, metavar="N", help="each sort of point once in each of N ways"
    )
    made.add_argument("--only", default="", metavar="REGEX", help="points whose sort contains this")
    made.add_argument("--part", default="1/1", help="of the points: 2/3 is the second third")
    made.add_argument(
        "--random", type=int, default=0, metavar="N", help="kill N times at random moments instead"
    )
    made.add_argument("--seed", type=int, default=0)
    return made


def main(words: list[str]) -> int:
    args = parser().parse_args(words)
    unknown = set(args.kinds) - set(KIND_NAMES)
    if unknown:
        print(f"error: unknown kind {min(unknown)}; known: {', '.join(KIND_NAMES)}", file=sys.stderr)
        return 2
    kinds = args.kinds or KIND_NAMES
    if VARIABLE not in os.environ:  # each kind in a process of its own, with the library
        with tempfile.TemporaryDirectory() as folder:
            env = os.environ | {VARIABLE: str(build(Path(folder)))}
            rest = [word for word in words if word not in kinds]
            ends = [
                subprocess.run([sys.executable, "-m", "tests.run.chaos", kind, *rest], env=env, check=False)
                for kind in kinds
            ]
        return max(end.returncode != 0 for end in ends)
    (kind,) = kinds
    with tempfile.TemporaryDirectory() as folder:
        return one_kind(kind, args, Path(folder))


def one_kind(kind: str, args: argparse.Namespace, folder: Path) -> int:
    """Breaks runs of one kind and prints what happened."""
    from metta_fast.storage.checkpoint import DamagedCheckpoint
    from tests.run.chaos.breaking import Breaker  # after the library is there: it imports torch

    began = time.monotonic()
    breaker = Breaker(folder, kind)
    found = breaker.points()
    if args.resumed:
        breaker.resumed(middle(found))
        found = breaker.points()
    part, parts = map(int, args.part.split("/"))
    seen, wrong = Counter[str](), 0
    length = time.monotonic()
    breaker.points()
    length = time.monotonic() - length
    chance = random.Random(f"{kind} {args.seed}")
    if args.random:
        jobs: list[tuple[str, float]] = [("random", chance.uniform(0, length)) for _ in range(args.random)]
    else:
        chosen = (
            few(found, breaker.site, args.ways)
            if args.ways
            else ((p.number, mode) for p in found for mode in WAYS)
        )
        sites = {point.number: point for point in found}
        jobs = [(mode, number) for number, mode in chosen if mode in args.modes and fits(sites[number], mode)]
        jobs = [(mode, n) for mode, n in jobs if re.search(args.only, breaker.site(sites[n]))][
            part - 1 :: parts
        ]
    for mode, number in jobs:
        try:
            if mode == "random":
                happened = f"killed: {breaker.killed(number)}"
            else:
                happened = f"{mode}: {breaker.broken(int(number), mode)}"
        except (AssertionError, DamagedCheckpoint) as error:
            wrong += 1
            where = (
                f"after {number:.3f} s"
                if mode == "random"
                else f"{number} ({breaker.site(sites[int(number)])})"
            )
            print(f"{kind} {mode} at {where}: {error}", flush=True)
        else:
            seen[happened] += 1
    print(f"{kind}: {len(found)} points, {len({breaker.site(point) for point in found})} sorts; {len(jobs)} times "
          f"broken, {wrong} wrong, in {time.monotonic() - began:.0f} s")  # fmt: skip
    for text, times in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"    {times:4d}  {text}")
    return int(wrong > 0)


def fits(point: Point, mode: str) -> bool:
    """Whether this way of breaking differs from another at this point."""
    return point.what == "write" or mode != "half"


def few(found: list[Point], site: Callable[[Point], str], ways: int) -> Iterator[tuple[int, str]]:
    """Yields each sort of point in some ways, the next sort in the next ones: every call is broken in every way, on
    some file."""
    sorts: dict[str, list[Point]] = {}
    for point in found:
        sorts.setdefault(site(point), []).append(point)
    place = 0
    for same in sorts.values():
        late = same[-1 - len(same) // 3]
        fitting = [mode for mode in WAYS if fits(late, mode)]
        for _ in range(min(ways, len(fitting))):
            yield late.number, fitting[place % len(fitting)]
            place += 1


def middle(found: list[Point]) -> int:
    """A point in the middle of a run's third checkpoint: there are others, a partly written one and later rows."""
    moments = [p.number for p in found if p.what == "create" and p.path.endswith("manifest.json")]
    return moments[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
