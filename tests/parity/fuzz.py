"""Plays random games for a given time and compares every step with the plain reference.

    python -m tests.parity.fuzz --seconds 3600
    python -m tests.parity.fuzz --seconds 1 --seed 4711   # the round that a failure names, again

Rounds of RUNS games; each round has a seed of its own, drawn by the system and printed when it fails, together with
the smallest game that hypothesis finds to differ. Ends with 1 then; with 0 when the time is over.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parity.grid_cases import Case, cases
from tests.parity.test_grid_parity import play_both

RUNS = 50
"""Games of a round."""
MAPS = ("table", "arena", "rooms", "maze")


class Tally:
    """What was played so far."""

    def __init__(self) -> None:
        self.games = self.steps = self.agent_steps = self.rounds = 0
        self.maps: Counter[str] = Counter()

    def add(self, case: Case, steps: int) -> None:
        self.games += 1
        self.steps += steps
        self.agent_steps += steps * int(case.config["num_agents"])
        self.maps[MAPS[int(case.config["map_kind"])]] += 1

    def __str__(self) -> str:
        maps = ", ".join(f"{self.maps[name]:,} {name}" for name in MAPS)
        return (
            f"{self.games:,} games ({maps}), {self.steps:,} steps, {self.agent_steps:,} steps of agents, "
            f"{self.rounds:,} rounds"
        )


def play_round(seed: int, tally: Tally) -> None:
    """RUNS games that follow from the seed.

    Raises:
        AssertionError: native and reference differ; hypothesis has noted the smallest such game on stderr.
    """

    @hypothesis.seed(seed)
    @settings(max_examples=RUNS, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(), st.integers(0, 2**32 - 1))
    def games(case: Case, actor_seed: int) -> None:
        tally.add(case, play_both(case, actor_seed))

    games()
    tally.rounds += 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no round after so long (60)")
    parser.add_argument("--seed", type=int, help="of the first round (default: drawn by the system)")
    args = parser.parse_args(argv)
    tally, start, told = Tally(), time.monotonic(), time.monotonic()
    draw = random.SystemRandom()
    seed = draw.getrandbits(63) if args.seed is None else args.seed
    print(f"first seed {seed}", flush=True)
    while True:
        try:
            play_round(seed, tally)
        except Exception:
            traceback.print_exc()
            print(f"FAILED in the round of --seed {seed}, after {tally}", file=sys.stderr)
            return 1
        now = time.monotonic()
        if now - start >= args.seconds:
            print(f"no difference in {now - start:.0f} s: {tally}")
            return 0
        if now - told >= 60:
            told = now
            print(f"{now - start:.0f} s: {tally}", flush=True)
        seed = draw.getrandbits(63)


if __name__ == "__main__":
    sys.exit(main())
