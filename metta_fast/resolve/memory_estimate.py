"""How much memory a run takes, reckoned before it starts: shown by --explain, and an error where it cannot fit.

    configuration, EnvSpec ─► estimate ─► parts of GPU and host memory ─► check against what is free

Arrays of buffers.py, the slab, states of native environments and weights are exact. Activations are per row of a
minibatch: on a GPU from the bytes that autograd kept on the CPU for each policy (bf16, hidden 128 and 256), twice for
gradients and temporaries; on the CPU from the most that trials took (bench/batch_trial.py), right to a tenth. What
environments written in Python take is not known. torch is not imported.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import prod

import numpy as np

from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import slab_size
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve import smaller_sizes

STATE_LAYERS = {"none": 0, "lstm": 2}
"""Arrays of hidden_size that a core keeps of an agent; others: 1."""
SAVED_BY_UNIT = {"none": 13, "lstm": 41, "mingru": 22}
"""Bytes of activations for each unit of hidden_size and row in bf16, encoder included."""
TAKEN_BY_UNIT = {"none": 17, "lstm": 92, "mingru": 43}
"""The same on the CPU, in fp32 or bf16, gradients and temporaries included."""
SAVED_BY_CHOICE = 17
"""The same for each parameter of the action distribution."""
SAVED_BY_ROW = 100
"""The same for a row's action, ratio, advantage and other numbers of the loss."""
GRID_COLUMNS = 4096
"""Inputs of the first layer over a grid observation, at most; they are decoded within its kernel."""
WEIGHT = 4 * 5
"""Bytes of a weight: itself, its gradient, Adam's two moments, a copy in the products' dtype."""
CONTEXT = GIB
"""CUDA's context, its libraries' workspaces, loaded kernels. The driver does not tell it beforehand."""
PROGRAM, PROGRAM_CUDA = GIB * 5 // 16, 3 * GIB // 2
"""Host memory of Python with torch; where torch has brought its CUDA libraries in."""
WORKER = 48 << 20
"""Host memory of a worker process without its environments; torch is not in it."""
ROOM, HOST_ROOM = 0.95, 0.9
"""The share of what is free that a run may fill: allocators lose some to fragments; the host has other programs."""


@dataclass(frozen=True)
class Part:
    """One user of memory."""

    name: str
    bytes: int
    on_gpu: bool


def estimate(config: Config, spec: EnvSpec) -> tuple[Part, ...]:
    """The parts of a resolved configuration's memory. Counts come from `config`, shapes from `spec`."""
    env, trainer = config.env, config.trainer
    cuda = trainer.device == "cuda"
    parts = [Part("rollout", _rollout(config, spec), cuda and not trainer.cpu_offload)]
    saved, agents = _saved(config, spec), env.num_envs * env.agents_per_env
    each = 2 * saved if cuda else saved
    activations = each * trainer.minibatch_size + saved * -(-agents // config.vector.async_factor)
    parts.append(Part("activations", activations, cuda))
    graphs = trainer.cuda_graphs or (trainer.compile and trainer.compile_mode == "reduce-overhead")
    if cuda and graphs:  # the runs before capture have their own
        parts.append(Part("pools of CUDA graphs", activations, True))
    parts.append(Part("weights", WEIGHT * _weights(config, spec), cuda))
    if cuda:
        parts.append(Part("CUDA", CONTEXT, True))
    states = 2 if env.device == "cuda" else 1  # the next episode of each lies beside it (vector/gpu.py)
    parts.append(Part("environments", states * env.num_envs * spec.state_bytes, env.device == "cuda"))
    if env.device != "cuda":
        copies = 1 if config.vector.zero_copy else 2
        slab = slab_size(dataclasses.replace(spec, num_envs=env.num_envs, agents_per_env=env.agents_per_env))
        parts.append(Part("slab", copies * slab, False))
        if config.vector.backend == "workers":
            parts.append(Part("workers", WORKER * config.vector.num_workers, False))
    parts.append(Part("program", PROGRAM_CUDA if cuda else PROGRAM, False))
    return tuple(part for part in parts if part.bytes)


def total(parts: tuple[Part, ...], *, on_gpu: bool) -> int:
    """Bytes on the GPU, or in the host's memory."""
    return sum(part.bytes for part in parts if part.on_gpu == on_gpu)


def describe(parts: tuple[Part, ...], *, on_gpu: bool = True) -> str:
    """What the parts on the GPU, or in the host's memory, are, the largest first: `rollout 1.2, CUDA 1.0 GiB`."""
    rows = sorted((part for part in parts if part.on_gpu == on_gpu), key=lambda part: -part.bytes)
    return ", ".join(f"{part.name} {part.bytes / GIB:.2f}" for part in rows) + " GiB"


def check(config: Config, spec: EnvSpec, machine: Machine) -> tuple[Part, ...]:
    """The estimate.

    Raises:
        UserError: it does not fit the machine, with sizes that do.
    """
    parts = estimate(config, spec)
    card = machine.gpus[0] if machine.gpus else None
    free = 0 if card is None else card.memory if card.free is None else card.free
    host = host_room(machine)

    def fits(smaller: Config) -> bool:
        needs = estimate(smaller, spec)
        return total(needs, on_gpu=False) <= host and total(needs, on_gpu=True) <= ROOM * free

    if fits(config):
        return parts
    sizes = smaller_sizes.smaller_sizes(config, fits)
    need = total(parts, on_gpu=True)
    if card is None or need <= ROOM * free:
        raise UserError(_host_refusal(parts, machine, f"try {sizes or 'a machine with more memory'}"))
    cure = f"try {sizes or 'a smaller policy.hidden_size'}"
    if need <= ROOM * card.memory:
        cure += f", or end the programs that use {(card.memory - free) / GIB:.1f} GiB of it"
    raise UserError(
        f"about {need / GIB:.1f} GiB of GPU memory would be needed ({describe(parts)}), but {card.name} has "
        f"{free / GIB:.1f} GiB free\n{cure}"
    )


def host_room(machine: Machine) -> float:
    """Bytes of host memory that a run may fill."""
    return HOST_ROOM * (machine.memory if machine.free is None else min(machine.memory, machine.free))


def _host_refusal(parts: tuple[Part, ...], machine: Machine, cure: str) -> str:
    need = total(parts, on_gpu=False)
    has = f"the machine has {machine.memory / GIB:.1f}"
    if machine.free is not None and machine.free < machine.memory:
        has += f", of which {machine.free / GIB:.1f} are free"
        if need <= HOST_ROOM * machine.memory:
            cure += ", or end other programs"
    what = describe(parts, on_gpu=False)
    return f"about {need / GIB:.1f} GiB of host memory would be needed ({what}), but {has}\n{cure}"


def _rollout(config: Config, spec: EnvSpec) -> int:
    """Buffers (buffers.py) and the rollout's noise."""
    env, trainer = config.env, config.trainer
    agents = env.num_envs * env.agents_per_env
    width = spec.action.width
    each = (
        4 * width + 4 * 5 + 2 + 4 * len(spec.stats) + 4 * width
    )  # action, five floats, two flags, stats, noise
    state = 4 * STATE_LAYERS.get(config.policy.core, 1) * config.policy.hidden_size * _networks(config)
    every = _observation(spec) + 2 + 4  # mask, reset, value: one row more than the horizon
    segments = trainer.batch_size // trainer.bptt_horizon
    return every * (trainer.batch_size + agents) + each * trainer.batch_size + state * segments


def _observation(spec: EnvSpec) -> int:
    return sum(prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in spec.obs.values())


def _inputs(spec: EnvSpec) -> int:
    """Inputs of the first layer that are held in memory as numbers: those of other than grid observations."""
    return 0 if spec.name == "grid" else sum(prod(leaf.shape) for leaf in spec.obs.values())


def _choices(spec: EnvSpec) -> int:
    """Parameters of the action distribution."""
    return sum(spec.action.nvec) if spec.action.kind == "discrete" else 2 * spec.action.width


def _networks(config: Config) -> int:
    """Encoders and cores: with policy.shared=false the value has its own."""
    return 1 if config.policy.shared else 2


def _saved(config: Config, spec: EnvSpec) -> int:
    """Bytes that autograd keeps of one row, gathered observation included; on the CPU all that is taken for it."""
    by_unit = SAVED_BY_UNIT if config.trainer.device == "cuda" else TAKEN_BY_UNIT
    wide = 1 if config.trainer.precision in ("bf16", "fp16") or by_unit is TAKEN_BY_UNIT else 2
    unit = by_unit.get(config.policy.core, max(by_unit.values())) * wide
    return (
        _observation(spec)
        + (6 * _inputs(spec) + unit * config.policy.hidden_size) * _networks(config)
        + SAVED_BY_CHOICE * _choices(spec)
        + SAVED_BY_ROW
    )


def _weights(config: Config, spec: EnvSpec) -> int:
    """Number of weights: two layers, core, heads."""
    size = config.policy.hidden_size
    core = {"none": 0, "lstm": 8}.get(config.policy.core, 3)
    network = (_inputs(spec) or GRID_COLUMNS) + size * (1 + core)
    return size * (network * _networks(config) + _choices(spec) + 1)
