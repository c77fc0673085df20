"""Defines the environment contract: the spec, and the batch that steps several environments.

    EnvFactory ──make_batch──► EnvBatch ──bind──► Rows (views of the vector backend's slab)

Place in the flow: the first contract (envs → vector). Nothing here imports torch: worker processes use it.
To add an environment, write an `EnvFactory`; `metta_fast.envs.python_env` has one for any Python environment.
`metta_fast/envs/counter.py` is the smallest example.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metta_fast.contracts.errors import UserError

Array = NDArray[Any]

EVAL_SEED_BIT = 1 << 63
"""Bit that is set in evaluation seeds and never in training seeds."""


KINDS = ("vector", "image", "symbols", "tokens", "grid")
"""Kinds of leaf contents: numbers, pixels, whole numbers that name categories, [n, 3] uint8 tokens, or bytes in the
grid world's layout."""
MOST_SYMBOLS = 256
"""The most categories that one channel of symbols has; larger values share the last one."""


@dataclass(frozen=True)
class Leaf:
    """Describes one array of an observation, for one agent (no leading axes)."""

    shape: tuple[int, ...]
    dtype: str
    """NumPy name: uint8, int32, float32, … The policy gets the environment's dtype."""
    kind: str = ""
    """One of KINDS; encoders are chosen by it. Default: "vector"."""
    channel_axis: int | None = None
    """The axis of the channels of an image or of symbols; None: no such axis."""
    bounds: tuple[tuple[int, int], ...] = ()
    """symbols: (lowest, highest) value of each channel; of one channel for all without such an axis. Default: the
    dtype's."""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "vector")
        if self.kind not in KINDS:
            raise ValueError(f"Leaf(kind={self.kind!r}): expected one of {', '.join(KINDS)}")
        axis = self.channel_axis
        if axis is not None and (self.kind not in ("image", "symbols") or not 0 <= axis < len(self.shape)):
            raise ValueError(
                f"Leaf(channel_axis={axis}, kind={self.kind!r}): expected an axis of {list(self.shape)}, for an image "
                "or symbols"
            )
        if self.kind == "symbols":
            self._check_symbols()
        elif self.bounds:
            raise ValueError(f"Leaf(bounds={self.bounds}, kind={self.kind!r}): bounds are for symbols alone")

    def _check_symbols(self) -> None:
        """Fills in the bounds. Raises ValueError for a dtype or bounds that symbols cannot have."""
        if np.dtype(self.dtype).kind not in "iu":
            raise ValueError(f"Leaf(kind='symbols', dtype={self.dtype}): expected whole numbers")
        channels = 1 if self.channel_axis is None else self.shape[self.channel_axis]
        if not self.bounds:
            limits = np.iinfo(self.dtype)
            object.__setattr__(self, "bounds", ((int(limits.min), int(limits.max)),) * channels)
        if len(self.bounds) != channels or any(low > high for low, high in self.bounds):
            raise ValueError(f"Leaf(bounds={self.bounds}): expected {channels} pairs of lowest, highest")


UNBOUNDED = 1e6
"""A box bound of a larger size is none: ±finfo.max says "any number", not a scale."""


@dataclass(frozen=True)
class ActionSpec:
    """Describes the action of one agent. Rows are int32 `[heads]` (discrete), float32 `[size]` (box), or float32 with
    the heads first and then the box's entries (mixed)."""

    kind: str
    """"discrete" (one or many heads), "box", or "mixed" (both)."""
    nvec: tuple[int, ...] = ()
    """discrete, mixed: the number of choices of each head."""
    start: tuple[int, ...] = ()
    """discrete, mixed: the first value of each head (Gymnasium's `Discrete(n, start=k)`). The policy counts from 0;
    python_env.py adds `start` before it calls the environment."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Returns the length of an action row."""
        return len(self.nvec) + len(self.low)

    @property
    def bounded(self) -> tuple[bool, ...]:
        """Returns for each entry of a box whether it has two bounds, which then are its scale (UNBOUNDED)."""
        return tuple(
            abs(low) <= UNBOUNDED and abs(high) <= UNBOUNDED for low, high in zip(self.low, self.high)
        )

    @property
    def dtype(self) -> str:
        return "int32" if self.kind == "discrete" else "float32"


@dataclass(frozen=True)
class EnvSpec:
    """Describes one environment. The number of environments is an argument of `make_vector` and `make_batch`."""

    name: str
    agents_per_env: int
    obs: Mapping[str, Leaf]
    """Leaves by name, in sorted order of their names. A plain array has the single name "obs"."""
    action: ActionSpec
    privileged: tuple[str, ...] = ()
    """Leaves that exist only in training and that only the value reads (metta_fast/config/policy_inputs.py)."""
    stats: tuple[str, ...] = ()
    """Names of the per-episode statistics in an agent's row when its episode ends (float32)."""
    max_steps: int = 0
    """The time limit, 0 if none is known."""
    has_final_obs: bool = True
    """False: the environment resets itself in the same step and does not return the last observation."""
    native: bool = False
    """True: `EnvBatch.native_job` exists, so threads step it without the GIL."""
    releases_gil: bool = False
    """True: a step of a batch without a native job spends its time outside Python's lock, so that threads step batches
    side by side."""
    cheap_state: bool = False
    """True: `EnvBatch.state_dict` is small and exact, so a checkpoint always holds it."""
    gpu: bool = False
    """True: its factory has `gpu_program()`, so that it can step on the GPU (metta_fast/vector/gpu.py), or
    `make_device_vector` (contracts/device_vector.py) for env.device=cuda alone."""
    state_bytes: int = 0
    """Size of one environment's state; 0 without an engine for the GPU."""
    batch_bytes: int = 0
    """Host memory of a batch beside its rows, such as that of a process of its own."""
    device_host_bytes: int = 0
    """Host memory of all environments on a GPU, such as that of processes that draw them."""
    notes: bool = False
    """True: `EnvBatch.notes()` exists: {kind: text}, messages for the user that do not stop the run."""
    reward_threshold: float | None = None
    """The mean return at which the environment counts as solved, if it says so."""
    info_stats: bool = False
    """True: `EnvBatch.info_sums()` exists: statistics that are not among `stats`, whose names are not known before."""
    stagger: bool = False
    """True: the environment can start its first episode in the middle (see DESIGN: episode ends)."""
    autoreset: str = "next_step"
    """When the next episode starts. "next_step": row t+1 holds the true last observation (masked), t+2
    the new episode's first. "same_step": row t+1 is the new episode's first; with `has_final_obs` the vector
    writes the last observation to `final_obs` (contracts/device_vector.py)."""
    action_mask: bool = False
    """True: each row carries a mask of the legal choices of discrete actions: `EnvBatch` writes Rows.action_mask."""
    device_rows: bool = False
    """True: its factory has `make_device_vector`: the environments' rows are torch tensors on the learner's device, a
    GPU or the CPU (contracts/device_vector.py)."""


NO_MASK = np.zeros((0, 0), np.bool_)
"""Stands for the action mask in rows of environments without one."""


class Rows(NamedTuple):
    """Holds numpy views of the slab for a contiguous range of agents. `n` = number of agents in the range.

    The row that carries `obs[t]` also carries `mask[t]`, `reset[t]` and the `reward`, `terminal`,
    `truncation` and `stats` of `action[t-1]`.
    """

    obs: Mapping[str, Array]
    """{leaf: [n, *shape]} in the leaf's dtype."""
    action: Array
    """[n, width] int32 or float32: written by the caller, read by `EnvBatch.step`."""
    reward: Array
    """[n] float32."""
    terminal: Array
    """[n] bool: the episode ended by the rules."""
    truncation: Array
    """[n] bool: a time limit cut the episode."""
    mask: Array
    """[n] bool: False for a row that is not trained on (see DESIGN: episode ends)."""
    reset: Array
    """[n] bool: first row of the agent's episode."""
    stats: Array
    """[n, len(spec.stats)] float32: valid where terminal or truncation is set."""
    action_mask: Array = NO_MASK
    """[n, P] bool, P choices of all heads together: True where the choice is legal. Without spec.action_mask it has no
    columns."""

    def slice(self, start: int, stop: int) -> Rows:
        """Returns views of agents [start, stop) of these rows."""
        return Rows({k: v[start:stop] for k, v in self.obs.items()}, *(a[start:stop] for a in self[1:]))


@runtime_checkable
class EnvBatch(Protocol):
    """Steps a contiguous range of environments together and writes into their rows.

    The batch resets each environment itself, next-step: the call after an episode's end ignores the action and writes
    the first row of the next episode.
    """

    def bind(self, rows: Rows) -> None:
        """Takes the rows to write to and to read actions from; they are kept until the next bind."""

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Restarts all environments and writes row 0. Environment i (global id) depends on (seed, i)."""

    def step(self) -> None:
        """Advances every environment by one step."""

    def native_job(self) -> tuple[int, int, int] | None:
        """Returns (address of `int32_t fn(void *ctx, int32_t lo, int32_t hi)`, address of ctx, number of envs), or
        None. `ctx` and all memory that fn uses stay in place for the batch's life, and the batch must be held until the
        last call has returned.

        Calling fn for ranges that cover 0…num_envs once, from any threads, equals `step()`. It returns 0. Anything
        else is a fault: the batch's `raise_fault()` then raises EnvError.
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for a bit-exact continuation, in a form that can be joined over batches and split again:
        numpy arrays with the batch's environments as the first axis, lists with one entry per environment, and plain
        values that are equal in all batches of a run. Dicts of these may be nested. A native batch returns copies; of
        another the vector takes them."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class NativeBatch(EnvBatch, Protocol):
    """Adds the method of a batch with a native job."""

    def raise_fault(self) -> None:
        """Raises EnvError if the job reported a fault."""


class NotingBatch(EnvBatch, Protocol):
    """Adds the method of a batch whose spec has `notes=True`."""

    def notes(self) -> dict[str, str]:
        """Returns {kind: text}: messages for the user about environments that keep running."""
        ...


class InfoBatch(EnvBatch, Protocol):
    """Adds the methods of a batch whose spec has `info_stats=True`."""

    def info_sums(self) -> dict[str, tuple[float, int]]:
        """Returns {name: (sum, number)} of the episodes that ended since the last call."""
        ...

    def last_info(self) -> dict[int, dict[str, Array]]:
        """Returns {environment of the batch: {name: [n]}} of the episodes that ended since the last call."""
        ...


@runtime_checkable
class EnvFactory(Protocol):
    """Makes batches. It is pickled (cloudpickle) to worker processes, so it holds configuration, not envs."""

    spec: EnvSpec

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> EnvBatch:
        """Makes the environments with global ids first_env … first_env+num_envs−1 of a run's total_envs.

        The environment with global id i depends on (seed, i) alone. `total_envs` is for staggering: env i starts its
        first episode at step i · max_steps / total_envs.
        """


def check_spec(factory: Any) -> None:
    """Raises UserError unless the factory's `spec` is an EnvSpec whose parts fit each other."""
    spec, name = factory.spec, type(factory).__name__
    if not isinstance(spec, EnvSpec):
        raise UserError(f"{name}.spec is {type(spec).__name__}: expected a metta_fast.EnvSpec")
    if spec.action_mask and not spec.action.nvec:
        raise UserError(
            f"{name}.spec has action_mask=True with continuous actions alone: masks are for discrete actions"
        )


def check_factory(factory: EnvFactory) -> None:
    """Raises UserError for a wrong spec, or a factory whose `make_batch` lacks the argument total_envs."""
    check_spec(factory)
    try:
        inspect.signature(factory.make_batch).bind(0, 1, 1)
    except ValueError:  # compiled: no signature to read
        return
    except TypeError as error:
        name = type(factory).__name__
        given = ", ".join(inspect.signature(factory.make_batch).parameters)
        raise UserError(
            f"{name}.make_batch({given}): expected {name}.make_batch(first_env, num_envs, total_envs), which makes "
            "environments first_env … first_env+num_envs-1 of total_envs"
        ) from error


def check_batches(factory: object, what: str) -> None:
    """Raises UserError for environments that step on the learner's device alone, where `what` needs batches."""
    if not isinstance(factory, EnvFactory):
        name = type(factory).__name__
        if why := getattr(factory, "no_batches", ""):
            raise UserError(f"{what} is not available for these environments: {why}")
        raise UserError(
            f"{what} is not available for these environments: they step on the learner's device, and {name} has no "
            f"{name}.make_batch(first_env, num_envs, total_envs) that makes environments for the CPU"
        )


class EnvError(RuntimeError):
    """Reports that an environment raised or returned an invalid value; the message has its global index."""

    def __init__(self, message: str, env: int | None = None) -> None:
        super().__init__(message)
        self.env = env
