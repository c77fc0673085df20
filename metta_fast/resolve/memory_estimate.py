"""Estimates a run's memory before it starts. --explain shows it; a run that cannot fit is refused.

    configuration, EnvSpec ─► estimate ─► parts of GPU and host memory ─► check against what is free

The algorithm estimates its own parts (buffers, activations, weights). The slab and the states of native environments
are exact. The memory of Python environments is unknown. torch is not imported.
"""

from __future__ import annotations

from math import prod

from metta_fast.algorithms.registry import kind_of
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import MemoryPart
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import slab_size
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve import smaller_sizes

CONTEXT = GIB
"""CUDA's context, library workspaces and loaded kernels. The driver does not report their size beforehand."""
PROGRAM, PROGRAM_CUDA = GIB * 5 // 16, 3 * GIB // 2
"""Host memory of Python with torch, without and with the CUDA libraries."""
WORKER = 48 << 20
"""Host memory of a worker process without its environments. It does not import torch."""
SMALLER = "a smaller policy.hidden_size, or a machine with more memory"
PICTURE = 1 << 15
"""Bytes of a picture from which a refusal names it: more than 84 x 84 in colours."""
WIDE = 100_000
"""Numbers in one leaf of an observation from which a refusal names it."""
ROOM, HOST_ROOM = 0.95, 0.9
"""Share of free memory that a run may use: allocators lose some to fragmentation; the host runs other programs."""


def estimate(config: Config, spec: EnvSpec, on_gpu: tuple[int, int] = (0, 0)) -> tuple[MemoryPart, ...]:
    """Returns the parts of a resolved configuration's memory. Counts come from `config`, shapes from `spec`.

    Args:
        on_gpu: what environments take there beside EnvSpec.state_bytes (env_answers.gpu_bytes).
    """
    env = config.env
    cuda = config.trainer.device == "cuda"
    parts = kind_of(config).memory(config, spec)
    if cuda:
        parts.append(MemoryPart("CUDA", CONTEXT, True))
    states = (
        2 if env.device == "cuda" else 1
    )  # each environment's next episode is kept too (vector/gpu_engine.py)
    worlds = on_gpu[0] + env.num_envs * on_gpu[1] if env.device == "cuda" else 0
    states_bytes = states * env.num_envs * spec.state_bytes
    parts.append(MemoryPart("environments", states_bytes + worlds, env.device == "cuda"))
    if env.device != "cuda":
        copies = 1 if config.vector.zero_copy else 2
        slab = slab_size(spec, env.num_envs * env.agents_per_env)
        parts.append(MemoryPart("slab", copies * slab, False))
        parts.append(MemoryPart("drawing", spec.batch_bytes * _batches(config), False))
        if config.vector.backend == "workers":
            parts.append(MemoryPart("workers", WORKER * config.vector.num_workers, False))
    else:
        parts.append(MemoryPart("drawing", spec.device_host_bytes, False))
    parts.append(MemoryPart("program", PROGRAM_CUDA if cuda else PROGRAM, False))
    return tuple(part for part in parts if part.bytes)


def _batches(config: Config) -> int:
    """Returns how many batches environments on the CPU are in: of each block one for each thread or worker."""
    vector = config.vector
    each = {"threads": vector.num_threads, "workers": vector.num_workers}.get(vector.backend, 1)
    return min(config.env.num_envs, each * vector.async_factor)


def total(parts: tuple[MemoryPart, ...], *, on_gpu: bool) -> int:
    """Returns the bytes on the GPU, or in the host's memory."""
    return sum(part.bytes for part in parts if part.on_gpu == on_gpu)


def describe(parts: tuple[MemoryPart, ...], *, on_gpu: bool = True) -> str:
    """Returns the parts on the GPU, or in the host's memory, largest first: `rollout 1.2, CUDA 1.0 GiB`."""
    rows = sorted((part for part in parts if part.on_gpu == on_gpu), key=lambda part: -part.bytes)
    return ", ".join(f"{part.name} {part.bytes / GIB:.2f}" for part in rows) + " GiB"


def check(
    config: Config, spec: EnvSpec, machine: Machine, on_gpu: tuple[int, int] = (0, 0)
) -> tuple[MemoryPart, ...]:
    """Returns the estimate.

    Args:
        on_gpu: as of `estimate`.

    Raises:
        UserError: it does not fit the machine. The message has sizes that fit.
    """
    parts = estimate(config, spec, on_gpu)
    card = machine.gpus[0] if machine.gpus else None
    free = 0 if card is None else card.memory if card.free is None else card.free
    host = host_room(machine)

    def fits(smaller: Config) -> bool:
        needs = estimate(smaller, spec, on_gpu)
        return total(needs, on_gpu=False) <= host and total(needs, on_gpu=True) <= ROOM * free

    if fits(config):
        return parts
    sizes = smaller_sizes.fewer_envs(config, fits) if on_gpu[1] and config.env.device == "cuda" else ""
    sizes = sizes or smaller_sizes.smaller_sizes(config, fits)
    wide = _wide(spec) + _frames(config.policy.frame_stack)
    need = total(parts, on_gpu=True)
    if card is None or need <= ROOM * free:
        raise UserError(_host_refusal(parts, machine, f"try {sizes or SMALLER}") + wide)
    cure = f"try {sizes or SMALLER}"
    if need <= ROOM * card.memory:
        cure += f", or end the programs that use {(card.memory - free) / GIB:.1f} GiB of it"
    raise UserError(
        f"about {need / GIB:.1f} GiB of GPU memory are needed ({describe(parts)}), but {card.name} has "
        f"{free / GIB:.1f} GiB free\n{cure}{wide}"
    )


def _wide(spec: EnvSpec) -> str:
    """Returns what to change about the widest leaf of an observation, if one alone explains the need, else ""."""
    name, size = max(((name, prod(leaf.shape)) for name, leaf in spec.obs.items()), key=lambda pair: pair[1])
    if spec.obs[name].kind == "image" and size >= PICTURE:
        return (
            f"; observation {name!r} of {spec.name} is a picture of {size:,} bytes: a smaller env.image.size"
        )
    if size < WIDE:
        return ""
    return (
        f"; observation {name!r} of {spec.name} is {size:,} numbers in each row, and as many inputs of the first "
        "layer (a Discrete or MultiDiscrete is read one-hot): give fewer numbers, such as coordinates, or digits as "
        "MultiDiscrete"
    )


def _frames(count: int) -> str:
    """Returns what to change about policy.frame_stack where it makes an observation many times as large, else ""."""
    if count == 1:
        return ""
    return (
        f"; policy.frame_stack={count} makes each row of a minibatch {count} observations: a smaller one, or "
        "policy.core=mingru in its place"
    )


def host_room(machine: Machine) -> float:
    """Returns the bytes of host memory that a run may use."""
    return HOST_ROOM * (machine.memory if machine.free is None else min(machine.memory, machine.free))


def _host_refusal(parts: tuple[MemoryPart, ...], machine: Machine, cure: str) -> str:
    need = total(parts, on_gpu=False)
    has = f"the machine has {machine.memory / GIB:.1f}"
    if machine.free is not None and machine.free < machine.memory:
        has += f", of which {machine.free / GIB:.1f} are free"
        if need <= HOST_ROOM * machine.memory:
            cure += ", or end other programs"
    what = describe(parts, on_gpu=False)
    return f"about {need / GIB:.1f} GiB of host memory are needed ({what}), but {has}\n{cure}"
