"""Training beside Stable-Baselines3 and PufferLib: the same environment, network, sizes and device, in turns.

    python benchmark_performance.py --train
    python benchmark_performance.py --train env=grid_solo trainer.minibatch_size=4096

Ours is the side of a comparison (side.py), a peer a child of train_peers.py; each burns in and rests while others take
their turn. Environments are on the CPU for all, for peers can have them nowhere else; with a GPU a row of ours with
environments on it stands beside. On the CPU every peer, and ours, is measured with one thread of torch and with all,
and the faster one counts: which that is differs between them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from metta_fast.bench.child import BUILD_LIMIT_S, Child, Failed
from metta_fast.bench.libraries import PUFFERLIB, SB3, Library
from metta_fast.bench.report import Report
from metta_fast.bench.rounds import in_turns
from metta_fast.bench.side import Side, composed_side
from metta_fast.bench.train import BASE, add_side
from metta_fast.config import Config
from metta_fast.errors import UserError
from metta_fast.resolve import resolve

PEERS: tuple[tuple[str, Library], ...] = (("sb3", SB3), ("puffer", PUFFERLIB))
WORKER = (sys.executable, "-m", "metta_fast.bench.train_peers")
TURN_LIMIT_S = 600.0
"""Of a peer's round: at least one epoch, whatever it takes."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """Who is measured, by its row's name, and how it is asked for a round."""

    name: str
    library: Library | None
    round: Callable[[], dict[str, Any]]
    side: Side | None = None


def check(overrides: Sequence[str]) -> Config:
    """The configuration that all train, resolved.

    Raises:
        UserError: a mistake in it, or what peers cannot train.
    """
    config = resolve(composed_side(words(overrides))).config
    if config.policy.core != "none":
        raise UserError(
            f"--train compares policies without memory: leave out policy.core={config.policy.core}"
        )
    if config.features:
        raise UserError("--train compares the plain algorithm: leave out features=")
    return config


def words(overrides: Sequence[str], *more: str) -> list[str]:
    """All arguments: the machine's own profile and environments on the CPU, unless said otherwise."""
    return ["hardware=auto", *BASE, "env.device=cpu", *more, *overrides]


def beside(report: Report, overrides: Sequence[str], seconds: float, repeats: int, say: Say) -> None:
    """Add a row for each, and the ratios of ours to the peers'."""
    config = check(overrides)
    counts = threads(config, overrides)
    with ExitStack() as stack:
        entrants = _ours(stack, config, overrides, counts, seconds, say)
        for kind, library in PEERS:
            if not library.version():
                report.notes.append(library.absent())
                continue
            entrants += _peer(stack, report, kind, library, overrides, counts, seconds, say)
        results, notes = in_turns([one.round for one in entrants], repeats, say)
    report.notes += notes
    speeds = {
        one.name: [found["steps_per_s"] for found in rounds]
        for one, rounds in zip(entrants, results, strict=True)
    }
    for one, rounds in zip(entrants, results, strict=True):
        if one.side is not None:
            add_side(report, one.name, one.side, rounds, peer="ours")
        else:
            assert one.library is not None
            version = f"{one.library.name} {one.library.version()}"
            report.add_row(one.name, speeds[one.name], peer=one.library.name, version=version)
    for library in dict.fromkeys(one.library for one in entrants if one.library):
        best = fastest([one.name for one in entrants if one.library is library], speeds)
        for mine in ours_to_compare(entrants, speeds):
            report.add_ratio(f"{mine} / {best}", speeds[mine], speeds[best])


def threads(config: Config, overrides: Sequence[str]) -> list[int]:
    """Numbers of torch's threads that are tried."""
    all_of_them = config.trainer.torch_threads
    if config.trainer.device != "cpu" or any(w.startswith("trainer.torch_threads=") for w in overrides):
        return [all_of_them]
    return sorted({1, all_of_them})


def fastest(names: Sequence[str], speeds: dict[str, list[float]]) -> str:
    """The name with the largest median of its rounds."""
    return max(names, key=lambda name: statistics.median(speeds[name]))


def ours_to_compare(entrants: Sequence[Entrant], speeds: dict[str, list[float]]) -> list[str]:
    """Our fastest with environments on the CPU, and the one with environments on the GPU if there is one."""
    names = [one.name for one in entrants if one.side is not None]
    on_gpu = [name for name in names if name.endswith(ON_GPU)]
    return [fastest([name for name in names if name not in on_gpu], speeds), *on_gpu]


ON_GPU = "environments on the GPU"


def _named(who: str, count: int, counts: Sequence[int]) -> str:
    return f"{who}, {count} thread{'s' * (count > 1)}" if len(counts) > 1 else who


def _ours(
    stack: ExitStack,
    config: Config,
    overrides: Sequence[str],
    counts: Sequence[int],
    seconds: float,
    say: Say,
) -> list[Entrant]:
    cases = {
        _named("metta_fast", count, counts): words(overrides, f"trainer.torch_threads={count}")
        for count in counts
    }
    if config.trainer.device == "cuda" and config.env.factory == "grid":
        cases[f"metta_fast, {ON_GPU}"] = ["hardware=auto", *BASE, *overrides]
    found = []
    for name, arguments in cases.items():
        side = stack.enter_context(Side(name, arguments))
        burnt = side.burn_in(seconds)
        say(f"{name}: burn-in of {burnt['epochs']} epochs, {burnt['seconds']:.1f} s")
        found.append(Entrant(name, None, partial(side.round, seconds), side))
    return found


def _peer(
    stack: ExitStack,
    report: Report,
    kind: str,
    library: Library,
    overrides: Sequence[str],
    counts: Sequence[int],
    seconds: float,
    say: Say,
) -> list[Entrant]:
    """A peer with each number of threads; none, with a note, if it fails."""
    found = []
    for count in counts:
        name = _named(library.name, count, counts)
        child = stack.enter_context(Child(name, command=WORKER))
        arguments = words(overrides, f"trainer.torch_threads={count}")
        try:
            ready = child.ask(BUILD_LIMIT_S, do="build", kind=kind, overrides=arguments)
            burnt = child.alone(TURN_LIMIT_S, do="round", seconds=seconds)
        except Failed as failed:
            report.notes.append(library.absent(failed.why))
            say(f"{name} failed: {failed.why}\n{failed.printed}")
            return []
        note = f"{library.name}: {ready['note']}"
        if ready["note"] and note not in report.notes:
            report.notes.append(note)
        say(f"{name}: {burnt['steps_per_s']:,.0f} steps/s in a burn-in of {burnt['epochs']} epochs")
        ask = partial(child.alone, TURN_LIMIT_S, do="round", seconds=seconds)
        found.append(Entrant(name, library, ask))
    return found
