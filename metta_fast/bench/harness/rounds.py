"""Measures rounds in turns: A B A B …; a pair disturbed by other programs is repeated.

    speeds = in_turns([side_a.round, side_b.round], repeats=5)

The sides burn in before. A pair is one call of each side. Ratios are taken within pairs, so that a slow drift of the
machine (heat, clock) affects both sides equally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metta_fast.bench.harness.other_load import DISTURBED, LIMIT, OtherLoad

TRIES = 3
"""Most repetitions of a disturbed pair; the last one is accepted."""

Round = Callable[[], dict[str, Any]]
"""One round of one side: {"steps_per_s": …, …}."""


def headed(say: Callable[[str], None], head: str) -> Callable[[str], None]:
    """Returns `say` with `head` before each line."""
    return lambda line: say(f"{head}: {line}")


def in_turns(
    sides: Sequence[Round],
    repeats: int,
    say: Callable[[str], None],
    watch: Callable[[], OtherLoad] = OtherLoad,
) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """Runs `repeats` rounds of each side in turns.

    Args:
        say: receives the progress, one line at a time.
        watch: starts measuring other programs.

    Returns:
        (the rounds of each side, notes on rounds that stayed disturbed).
    """
    results: list[list[dict[str, Any]]] = [[] for _ in sides]
    disturbed = 0.0
    count = 0
    for number in range(repeats):
        for attempt in range(TRIES + 1):
            watching = watch()
            rounds = [side() for side in sides]
            used = watching.stop()
            if used.quiet:
                break
            if attempt < TRIES:
                say(f"round {number + 1}: other programs used {used}; repeating it")
            else:
                count, disturbed = count + 1, max(disturbed, used.cores)
                say(f"round {number + 1}: other programs used {used}; taken after {TRIES} repetitions")
        for found, one in zip(results, rounds, strict=True):
            found.append(one)
        speeds = ", ".join(f"{one['steps_per_s']:,.0f} steps/s" for one in rounds)
        say(f"round {number + 1} of {repeats}: {speeds}")
    notes = []
    if count:
        notes.append(
            f"{count} of {repeats} rounds were {DISTURBED}, by up to {disturbed:.2f} cores "
            f"(limit {LIMIT}), also when repeated {TRIES} times"
        )
    return results, notes
