"""Compares training with Stable-Baselines3 and PufferLib: same environment, network, sizes and device, in turns.

    python benchmark_performance.py --train
    python benchmark_performance.py --train env=grid_solo trainer.minibatch_size=4096

metta_fast runs in side.py, each peer in child_program.py. Each burns in, and pauses while others take their turn.
Environments are on the CPU for all, since the peers cannot have them on the GPU; on a machine with a GPU, metta_fast
has an additional row with environments on the GPU. Each peer is measured in several variants (peer_variants.py) and
compared by its fastest.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any

from metta_fast.bench.harness.child_handle import BUILD_LIMIT_S, Child, Failed, all_at_once
from metta_fast.bench.harness.libraries import PUFFERLIB, SB3, Library
from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import in_turns
from metta_fast.bench.training.peer_variants import Variant, on_cpu, variants
from metta_fast.bench.training.side import Side, composed_side
from metta_fast.bench.training.two_settings import BASE, add_side
from metta_fast.config.keys import Config
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.resolve.resolve import resolve

PEERS: tuple[tuple[str, Library], ...] = (("sb3", SB3), ("puffer", PUFFERLIB))
WORKER = (sys.executable, "-m", "metta_fast.bench.training.child_program")
TURN_LIMIT_S = 600.0
"""Time limit of a peer's round, which is at least one epoch."""
AT_ONCE = 6
"""Number of processes assumed to compile at the same time."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """One participant: its row's name, and a function that measures a round."""

    name: str
    library: Library | None
    round: Callable[[], dict[str, Any]]
    side: Side | None = None
    variant: Variant = field(default_factory=Variant)


class Turns:
    """Measures a peer's rounds; after a failure it returns 0 steps per second, and the others continue.

    Args:
        fail: called with the failure.
    """

    def __init__(self, child: Child, seconds: float, fail: Callable[[Failed], None]) -> None:
        self._child, self._seconds, self._fail = child, seconds, fail
        self.failed = False

    def __call__(self) -> dict[str, Any]:
        if not self.failed:
            try:
                return self._child.alone(TURN_LIMIT_S, do="round", seconds=self._seconds)
            except Failed as failed:
                self.failed = True
                self._fail(failed)
                self._child.close()
        return {"steps_per_s": 0.0}


def check(overrides: Sequence[str]) -> Config:
    """Returns the resolved configuration that all train.

    Raises:
        UserError: the overrides contain a mistake, or something that the peers cannot train.
    """
    config = resolve(composed_side(words(overrides))).config
    if config.policy.core != "none":
        raise UserError(f"--train compares policies without a core: remove policy.core={config.policy.core}")
    if config.features:
        raise UserError("--train compares the algorithm without features: remove features=")
    return config


def words(overrides: Sequence[str], *more: str) -> list[str]:
    """Returns all arguments: by default the machine's profile, with environments on the CPU."""
    return ["hardware=auto", *BASE, "env.device=cpu", *more, *overrides]


def beside(report: Report, overrides: Sequence[str], seconds: float, repeats: int, say: Say) -> None:
    """Adds a row for each participant, and the ratios of ours to the peers'."""
    config = check(overrides)
    with ExitStack() as stack:
        entrants = _built(stack, report, config, overrides, seconds, say)
        results, notes = in_turns([one.round for one in entrants], repeats, say)
    report.notes += notes
    lasting = [not (isinstance(one.round, Turns) and one.round.failed) for one in entrants]
    entrants, results = list(compress(entrants, lasting)), list(compress(results, lasting))
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
        for theirs in theirs_to_compare([one for one in entrants if one.library is library], speeds):
            for mine in ours_to_compare(entrants, speeds):
                report.add_ratio(f"{mine} / {theirs}", speeds[mine], speeds[theirs])


def threads(config: Config, overrides: Sequence[str]) -> list[int]:
    """Returns the numbers of torch threads to try."""
    all_of_them = config.trainer.torch_threads
    if config.trainer.device != "cpu" or any(w.startswith("trainer.torch_threads=") for w in overrides):
        return [all_of_them]
    return sorted({1, all_of_them})


def fastest(names: Sequence[str], speeds: dict[str, list[float]]) -> str:
    """Returns the name with the largest median of its rounds."""
    return max(names, key=lambda name: statistics.median(speeds[name]))


def ours_to_compare(entrants: Sequence[Entrant], speeds: dict[str, list[float]]) -> list[str]:
    """Returns our fastest row with environments on the CPU, and the one with environments on the GPU, if any."""
    names = [one.name for one in entrants if one.side is not None]
    on_gpu = [name for name in names if name.endswith(ON_GPU)]
    return [fastest([name for name in names if name not in on_gpu], speeds), *on_gpu]


def theirs_to_compare(entrants: Sequence[Entrant], speeds: dict[str, list[float]]) -> list[str]:
    """Returns a library's fastest variant, and its fastest without our kernels if there is one."""
    alone = [one.name for one in entrants if one.variant.plain]
    best = fastest([one.name for one in entrants], speeds)
    return list(dict.fromkeys([best, *([fastest(alone, speeds)] if alone else [])]))


ON_GPU = "environments on the GPU"


def _named(who: str, label: str) -> str:
    return f"{who}, {label}" if label else who


def _built(
    stack: ExitStack, report: Report, config: Config, overrides: Sequence[str], seconds: float, say: Say
) -> list[Entrant]:
    """Builds and burns in all participants; those that fail are noted in the report.

    With a GPU, all at once, since most of the time is compiling; on the CPU, one after another.
    """
    counts = threads(config, overrides)
    work: list[Callable[[], Entrant | None]] = []
    for variant in on_cpu(counts):
        arguments = words(overrides, *variant.words)
        work.append(partial(_ours, stack, _named("metta_fast", variant.label), arguments, seconds, say))
    if config.trainer.device == "cuda" and make_factory(config.env).spec.gpu:
        arguments = ["hardware=auto", *BASE, *overrides]
        work.append(partial(_ours, stack, _named("metta_fast", ON_GPU), arguments, seconds, say))
    for kind, library in PEERS:
        if not library.version():
            report.notes.append(library.absent())
            continue
        for variant in variants(kind, config, counts):
            work.append(partial(_peer, stack, report, kind, library, variant, overrides, seconds, say))
    at_once = config.trainer.device == "cuda"
    found = all_at_once(work) if at_once else [one() for one in work]
    return [one for one in found if isinstance(one, Entrant)]


def _ours(stack: ExitStack, name: str, arguments: list[str], seconds: float, say: Say) -> Entrant:
    side = stack.enter_context(Side(name, arguments))
    burnt = side.burn_in(seconds)
    say(f"{name}: burn-in of {burnt['epochs']} epochs, {burnt['seconds']:.1f} s")
    return Entrant(name, None, partial(side.round, seconds), side)


def _peer(
    stack: ExitStack,
    report: Report,
    kind: str,
    library: Library,
    variant: Variant,
    overrides: Sequence[str],
    seconds: float,
    say: Say,
) -> Entrant | None:
    """Builds and burns in one variant of a peer; returns None and adds a note if it fails."""
    name = _named(library.name, variant.label)
    child = stack.enter_context(Child(name, beside=AT_ONCE, command=WORKER))

    def fail(failed: Failed) -> None:
        report.notes.append(f"absent: {name}: {failed.why}")
        say(f"{name} failed: {failed.why}\n{failed.printed}")

    try:
        arguments = [*words(overrides), *variant.words]
        ready = child.ask(BUILD_LIMIT_S, do="build", kind=kind, overrides=arguments, **variant.options)
        burnt = child.alone(TURN_LIMIT_S, do="burn_in", seconds=seconds)
    except Failed as failed:
        fail(failed)
        return None
    note = f"{library.name}: {ready['note']}"
    if ready["note"] and note not in report.notes:
        report.notes.append(note)
    say(f"{name}: {burnt['steps_per_s']:,.0f} steps/s in a burn-in of {burnt['epochs']} epochs")
    return Entrant(name, library, Turns(child, seconds, fail), variant=variant)
