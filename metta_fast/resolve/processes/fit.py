"""Fits a run to its processes: how many they are, and sizes that divide among them. Used by resolve.py. No torch here.

A value that the user typed is used, or refused with the nearest values that work; any other is rounded down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from metta_fast.algorithms.registry import AlgorithmKind
from metta_fast.config.divisors import divisors
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import SizeChange
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.env_answers import fixed_num_envs
from metta_fast.contracts.errors import UserError
from metta_fast.distributed.place import found
from metta_fast.machine.hardware import Machine

Typed = Callable[[str], bool]


def fit_processes(
    config: Config, kind: AlgorithmKind, factory: EnvFactory, machine: Machine, typed: Typed
) -> list[SizeChange]:
    """Finds the number of processes and fits env.num_envs to it, in place. Returns the changes.

    Raises:
        UserError: the algorithm, the environments or the GPUs do not allow that many.
    """
    changes = _count(config, machine, typed)
    world = config.distributed.processes
    if world == 1:
        return changes
    what = f"{world} processes ({'torchrun' if found().active else 'distributed.processes'})"
    if not kind.processes:
        raise UserError(
            f"{what}: algorithm={config.algorithm['name']} trains with one process; leave distributed.processes out"
        )
    if config.env.show_viewer:
        raise UserError(f"{what}: env.show_viewer=true shows the environments of one process; leave it out")
    if config.vector.restart_workers:
        raise UserError(
            f"{what}: vector.restart_workers={config.vector.restart_workers} repeats an epoch of one process, and the "
            "others would go on; leave it out, and continue with resume=auto"
        )
    envs = config.env.num_envs
    if count := fixed_num_envs(factory):
        raise UserError(
            f"{what}: {config.env.factory} makes one batch of {count} environments, which cannot be divided; leave "
            "distributed.processes out"
        )
    if envs % world:
        down, up = envs // world * world, (envs // world + 1) * world
        if typed("env.num_envs") or not down:
            nearest = f"{down} or {up}" if down else f"{up}"
            raise UserError(
                f"env.num_envs={envs} does not divide among {what}; nearest that work: {nearest}, or "
                f"{_counts(envs)} processes"
            )
        config.env.num_envs = down
        changes.append(
            SizeChange("env.num_envs", down, f"{envs} rounded down to a multiple of {world} processes")
        )
    blocks = config.vector.async_factor
    if blocks > (most := config.env.num_envs // world):
        if typed("vector.async_factor"):
            raise UserError(
                f"vector.async_factor={blocks} blocks need as many environments, but each of {what} has {most} of "
                f"env.num_envs={config.env.num_envs}; try vector.async_factor={most}"
            )
        config.vector.async_factor = most
        changes.append(
            SizeChange("vector.async_factor", most, f"{blocks} lowered to a process's environments")
        )
    return changes


def _count(config: Config, machine: Machine, typed: Typed) -> list[SizeChange]:
    """Resolves distributed.processes, and checks it against torchrun and the GPUs."""
    own, place = config.distributed, found()
    given = own.processes
    if place.active:
        if typed("distributed.processes") and given not in ("auto", place.world):
            raise UserError(
                f"distributed.processes={given}, but torchrun started {place.world} processes; leave it out"
            )
        own.processes = place.world
        return [SizeChange("distributed.processes", place.world, "torchrun", False)] * (given != place.world)
    if given == "auto":
        own.processes = max(1, len(machine.gpus)) if config.trainer.device != "cpu" else 1
        why = f"{len(machine.gpus)} GPUs" if own.processes > 1 else "one GPU or none is used"
        return [SizeChange("distributed.processes", own.processes, why, False)]
    cards = len(machine.gpus)
    if 0 < cards < given and config.trainer.device != "cpu" and own.backend != "gloo":
        raise UserError(
            f"distributed.processes={given} are more than the {cards} GPU{'s' * (cards > 1)} of this machine; give "
            f"distributed.processes={cards}, distributed.backend=gloo to share them, or trainer.device=cpu"
        )
    return []


def _counts(envs: int) -> str:
    """Returns the numbers of processes that divide `envs`, a few of them."""
    return ", ".join(map(str, divisors(envs)[1:5])) or "1"


def fit_minibatch(config: Config, kind: AlgorithmKind, typed: Typed) -> SizeChange | None:
    """Fits trainer.minibatch_size in place: whole segments for each process. Returns the change, or None.

    Raises:
        UserError: a typed value that does not divide.
    """
    world, trainer = config.distributed.processes, config.trainer
    if world == 1:
        return None
    rollout = "bptt_horizon" in kind.reads  # it learns from whole segments of a batch
    unit = world * trainer.bptt_horizon if rollout else world
    size = trainer.minibatch_size
    if size % unit == 0:
        return None
    usable = [unit * n for n in divisors(trainer.batch_size // unit)] if rollout else []
    down = max((n for n in usable if n <= size), default=size // unit * unit or unit)
    up = min((n for n in usable if n > size), default=(size // unit + 1) * unit)
    why = f"{world} processes"
    if rollout:
        why += f" with segments of trainer.bptt_horizon={trainer.bptt_horizon}"
    if typed("trainer.minibatch_size"):
        raise UserError(
            f"trainer.minibatch_size={size} does not divide among {why}; nearest that work: {min(down, up)} or {up}"
        )
    trainer.minibatch_size = down
    return SizeChange("trainer.minibatch_size", down, f"{size} fitted to {why}")


def part_of(machine: Machine, processes: int) -> Machine:
    """Returns what one of the processes on this machine may use of its cores and memory."""
    place = found()
    here = place.local_world if place.active else processes
    if here == 1:
        return machine
    return dataclasses.replace(
        machine,
        cores=max(1, machine.cores // here),
        memory=machine.memory // here,
        free=None if machine.free is None else machine.free // here,
    )
