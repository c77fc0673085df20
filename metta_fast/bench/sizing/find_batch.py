"""Finds the largest batch that fits this device's memory: `metta-fast bench --find-batch [key=value …]`.

    sizes ─► by estimate (resolve/memory_estimate.py): doubled while they should fit
          ─► by trial, a process each (batch_trial.py): doubled or halved, then bisected ─► the keys to type

Sizes that a training would refuse because of the estimate are not tried, so the printed keys always work. The number
of environments stays, so a larger batch is a longer horizon. The minibatch keeps its share of the batch unless it was
typed. A trial uses the memory of a whole run: rollout, a minibatch with its gradients, optimizer, CUDA graphs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

from metta_fast.bench.harness.child_handle import BUILD_LIMIT_S, Child, Failed
from metta_fast.config.keys import Config, config_from_dict, config_to_dict
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.machine import hardware
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve import memory_estimate as memory
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

START = 1 << 16
"""Rows of the first batch, or one segment of every agent if that is more."""
MOST = 1 << 28
"""Most rows: larger batches are of no practical use."""
CLOSE = 9 / 8
"""The search ends when the smallest size that fails is at most this times the largest that fits."""
RUN_LIMIT_S = 1200.0
"""Time limit of a trial's run: on few cores a minibatch of millions of rows takes minutes."""
WORKER = (sys.executable, "-m", "metta_fast.bench.sizing.batch_trial")
SHORT = ("OutOfMemoryError", "MemoryError", "can't allocate memory", "out of memory", "exit code -9")
"""Parts of a trial's error that mean it ran out of memory."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """Valid batch sizes: multiples of `unit`, each with its minibatch."""

    unit: int
    minibatch: int | None
    """Rows of a minibatch, if they were typed; None: the batch divided by `share`."""
    share: int

    def minibatch_of(self, batch: int) -> int:
        """Returns the rows of a minibatch."""
        return self.minibatch or batch // self.share

    def words(self, batch: int) -> str:
        """Returns the keys to type."""
        typed = f"trainer.batch_size={batch}"
        return typed if self.minibatch else f"{typed} trainer.minibatch_size={self.minibatch_of(batch)}"


def sizes_of(config: Config, *, minibatch_typed: bool) -> Sizes:
    """Returns the valid batch sizes of a resolved configuration."""
    env, trainer = config.env, config.trainer
    segment = env.num_envs * env.agents_per_env * trainer.bptt_horizon
    share = trainer.batch_size // trainer.minibatch_size
    if minibatch_typed:
        return Sizes(lcm(segment, trainer.minibatch_size), trainer.minibatch_size, share)
    return Sizes(lcm(segment, share * trainer.bptt_horizon), None, share)


def largest(fits: Callable[[int], bool], first: int, unit: int, most: int = MOST) -> int:
    """Finds the largest multiple of `unit` that fits, with precision CLOSE; 0 if not even `unit` fits.

    Args:
        fits: whether a size fits; if one does not, larger ones are assumed not to.
        first: size to begin with, a multiple of `unit`.
    """
    good, bad = 0, most // unit * unit + unit
    size = first
    while True:
        if fits(size):
            good = size
        else:
            bad = size
        if bad <= unit or bad - good <= unit or (good and bad <= CLOSE * good):
            return good
        if not good:
            size = max(bad // 2 // unit, 1) * unit
        elif bad > most:
            size = min(2 * good, most // unit * unit)
        else:
            size = max((good + bad) // 2 // unit * unit, good + unit)


def find_batch(overrides: Sequence[str], say: Say) -> str:
    """Finds the largest batch and returns the text to print.

    Raises:
        UserError: the overrides contain a mistake, or a trial failed for another reason than memory.
    """
    composed = compose(list(overrides), default_hardware="auto")
    if composed.typed("trainer.batch_size"):
        raise UserError("--find-batch looks for trainer.batch_size: leave it out")
    resolved = resolve(composed)
    config, machine = resolved.config, hardware.detect()
    sizes = sizes_of(config, minibatch_typed=composed.typed("trainer.minibatch_size"))
    spec = resolved.factory.spec
    on_gpu = config.trainer.device == "cuda"
    where = machine.gpus[0].name if on_gpu else "this machine"
    begin = max(-(-START // sizes.unit), 1) * sizes.unit
    estimated = begin
    while 2 * estimated <= MOST and estimated_to_fit(with_sizes(config, sizes, 2 * estimated), spec, machine):
        estimated *= 2
    say(f"by estimate {estimated:,} rows fit {where}; trying this size and its neighbours")

    def fits(batch: int) -> bool:
        tried = with_sizes(config, sizes, batch)
        parts = memory.estimate(tried, spec)
        need = memory.total(parts, on_gpu=on_gpu) / GIB
        begun = f"{sizes.words(batch)} ({need:.1f} GiB estimated): "
        if not estimated_to_fit(tried, spec, machine):
            say(begun + "would be refused")
            return False
        used = _trial(tried, memory.host_room(machine))
        say(begun + ("does not fit" if used is None else f"fits, {used / GIB:.1f} GiB used"))
        return used is not None

    batch = largest(fits, estimated, sizes.unit)
    if not batch:
        raise UserError(
            f"not even the smallest batch fits {where}: {sizes.unit:,} rows, one segment of bptt_horizon "
            f"{config.trainer.bptt_horizon} for each of {config.env.num_envs * config.env.agents_per_env} agents; give "
            "a smaller env.num_envs="
        )
    at_most = " (the search ends here)" if 2 * batch > MOST else ""
    horizon = batch // (config.env.num_envs * config.env.agents_per_env)
    return (
        f"the largest batch that fits {where}{at_most}: {sizes.words(batch)}\n"
        f"Each of {config.env.num_envs * config.env.agents_per_env} agents makes {horizon} steps between two updates. "
        "A larger batch is faster only until the device is busy, and it makes fewer updates per step."
    )


def with_sizes(config: Config, sizes: Sizes, batch: int) -> Config:
    """Copies the configuration with this batch and its minibatch."""
    found = config_from_dict(config_to_dict(config))
    found.trainer.batch_size, found.trainer.minibatch_size = batch, sizes.minibatch_of(batch)
    count = batch // found.trainer.minibatch_size
    if count % found.trainer.gradient_accumulation:
        found.trainer.gradient_accumulation = 1
    return found


def estimated_to_fit(config: Config, spec: EnvSpec, machine: Machine) -> bool:
    """Whether a training would accept this configuration by its memory estimate."""
    try:
        memory.check(config, spec, machine)
    except UserError:
        return False
    return True


def _trial(config: Config, host_limit: float) -> int | None:
    """Runs a trial; returns the bytes used, or None if memory ran out. Raises UserError: another failure."""
    with Child("trial", command=WORKER) as child:
        try:
            child.ask(BUILD_LIMIT_S, do="build", config=config_to_dict(config), host_limit=int(host_limit))
            used: dict[str, Any] = child.ask(RUN_LIMIT_S, do="run")
        except Failed as failed:
            if any(word in failed.why + failed.printed for word in SHORT):
                return None
            raise UserError(
                f"--find-batch: a trial of trainer.batch_size={config.trainer.batch_size} failed: {failed.why}"
                + (f"\n{failed.printed}" if failed.printed else "")
            ) from None
    return int(used["bytes"])
