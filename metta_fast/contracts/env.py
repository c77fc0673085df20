"""Defines what an environment is to the rest of the system: its spec, and the batch that steps some of its copies.

    EnvFactory ──make_batch──► EnvBatch ──bind──► Rows (views of the vector backend's slab)

Place in the flow: the first contract (envs → vector). Nothing here imports torch: worker processes use it.
To add an environment, write an `EnvFactory`; for a plain Python environment, `metta_fast.envs.python_env`
already holds one. `metta_fast/envs/counter.py` is the smallest example.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from numpy.typing import NDArray

from metta_fast.contracts.errors import UserError

Array = NDArray[Any]

EVAL_SEED_BIT = 1 << 63
"""Seeds with this bit set are for evaluation alone: training seeds are below it."""


KINDS = ("vector", "image", "symbols", "tokens", "grid")
"""What a leaf holds: numbers, pixels, uint8 categories, [n, 3] uint8 tokens, or bytes in the grid world's layout."""


@dataclass(frozen=True)
class Leaf:
    """Describes one array of an observation, for one agent (no leading axes)."""

    shape: tuple[int, ...]
    dtype: str
    """numpy name: uint8, int32, float32, …  Kept as it is from the environment to the policy."""
    kind: str = ""
    """One of KINDS, by which encoders are chosen; by default "symbols" for uint8, otherwise "vector"."""
    channel_axis: int | None = None
    """The axis of an image's channels; None: it has none, or is no image."""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "symbols" if self.dtype == "uint8" else "vector")
        if self.kind not in KINDS:
            raise ValueError(f"Leaf(kind={self.kind!r}): expected one of {', '.join(KINDS)}")
        axis = self.channel_axis
        if axis is not None and (self.kind != "image" or not 0 <= axis < len(self.shape)):
            raise ValueError(
                f"Leaf(channel_axis={axis}, kind={self.kind!r}): expected an axis of {list(self.shape)}, for an image"
            )


@dataclass(frozen=True)
class ActionSpec:
    """Describes the action of one agent. Rows are int32 `[heads]` (discrete) or float32 `[size]` (box)."""

    kind: str
    """"discrete" (one or many heads) or "box"."""
    nvec: tuple[int, ...] = ()
    """discrete: the number of choices of each head."""
    start: tuple[int, ...] = ()
    """discrete: the first value of each head (Gymnasium's `Discrete(n, start=k)`); the policy works from 0,
    `start` is added where the environment's own space is met (python_env.py)."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Returns the length of an action row."""
        return len(self.nvec) if self.kind == "discrete" else len(self.low)

    @property
    def dtype(self) -> str:
        return "int32" if self.kind == "discrete" else "float32"


@dataclass(frozen=True)
class EnvSpec:
    """Describes one environment; how many there are is given beside it (`make_vector`, `EnvFactory.make_batch`)."""

    name: str
    agents_per_env: int
    obs: Mapping[str, Leaf]
    """Leaves by name, in sorted order of their names. A plain array has the single name "obs"."""
    action: ActionSpec
    privileged: tuple[str, ...] = ()
    """Leaves that only training has, for the value alone (metta_fast/config/policy_inputs.py)."""
    stats: tuple[str, ...] = ()
    """Names of the per-episode statistics an agent's row carries when its episode ends (float32)."""
    max_steps: int = 0
    """The time limit, 0 if none is known."""
    has_final_obs: bool = True
    """False: the environment resets itself in the same step and does not give the last observation."""
    native: bool = False
    """True: `EnvBatch.native_job` exists, so threads step it without the GIL."""
    cheap_state: bool = False
    """True: `EnvBatch.state_dict` is small and exact, so a checkpoint always holds it."""
    gpu: bool = False
    """True: its factory gives `gpu_program()`, so that it can step on the GPU (metta_fast/vector/gpu.py)."""
    state_bytes: int = 0
    """Size of one environment's state; 0 without an engine for the GPU."""
    notes: bool = False
    """True: `EnvBatch.notes()` exists: {kind: text}, what the user should be told of environments that go on."""
    stagger: bool = False
    """True: the environment can start its first episode in the middle (see DESIGN: episode ends)."""
    autoreset: str = "next_step"
    """When an ended episode gives way to the next. "next_step": row t+1 holds the true last observation (masked), t+2
    the new episode's first. "same_step": row t+1 is the new episode's first; with `has_final_obs` the vector gives
    the last observation apart (contracts/device_vector.py)."""
    action_mask: bool = False
    """True: each row carries a mask of legal choices (discrete actions; environments on the learner's device)."""
    device_rows: bool = False
    """True: its factory gives `make_device_vector`, environments whose rows are torch tensors on the learner's device,
    be it a GPU or the CPU (contracts/device_vector.py)."""


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
    """[n] bool: it was cut (a time limit)."""
    mask: Array
    """[n] bool: False for a row that is not trained on (see DESIGN: episode ends)."""
    reset: Array
    """[n] bool: first row of the agent's episode."""
    stats: Array
    """[n, len(spec.stats)] float32: valid where terminal or truncation is set."""

    def slice(self, start: int, stop: int) -> Rows:
        """Views of agents [start, stop) of these rows."""
        return Rows({k: v[start:stop] for k, v in self.obs.items()}, *(a[start:stop] for a in self[1:]))


@runtime_checkable
class EnvBatch(Protocol):
    """Steps a contiguous range of environments together and writes into their rows.

    The batch resets each environment by itself, next-step: the call after an episode's end ignores the
    action and gives the first row of the next episode.
    """

    def bind(self, rows: Rows) -> None:
        """Takes the rows to write to and to read actions from; they are kept until the next bind."""

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Restarts all environments and writes row 0. What the env of global id i does depends on (seed, i)."""

    def step(self) -> None:
        """Advances every environment by one step."""

    def native_job(self) -> tuple[int, int, int] | None:
        """(address of `int32_t fn(void *ctx, int32_t lo, int32_t hi)`, address of ctx, number of envs), or None.

        Calling fn for ranges that cover 0…num_envs once, from any threads, equals `step()`. It returns 0; anything
        else means that `raise_fault()`, which such a batch has, raises EnvError.
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns all that is needed to go on bit for bit, so that states of batches can be joined and cut again:
        numpy arrays with the batch's environments as the first axis, lists with one entry per environment,
        and plain values that are equal in all batches of a run. Dicts of these may be nested. Arrays are copies."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class NativeBatch(EnvBatch, Protocol):
    """Adds what a batch with a native job has."""

    def raise_fault(self) -> None:
        """Raises EnvError if the job reported a fault."""


class NotingBatch(EnvBatch, Protocol):
    """Adds what a batch has whose spec says `notes`."""

    def notes(self) -> dict[str, str]:
        """Returns {kind: text}: what the user should know of environments that go on."""
        ...


@runtime_checkable
class EnvFactory(Protocol):
    """Makes batches. It is pickled (cloudpickle) to worker processes, so it holds configuration, not envs."""

    spec: EnvSpec

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> EnvBatch:
        """Makes the environments with global ids first_env … first_env+num_envs−1 of a run's total_envs.

        What the environment with global id i does depends on (seed, i) alone; `total_envs` is for staggering: env i
        starts its first episode at step i · max_steps / total_envs.
        """


def check_factory(factory: EnvFactory) -> None:
    """Raises UserError for a factory whose `make_batch` lacks the argument total_envs."""
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


class EnvError(RuntimeError):
    """Says that an environment raised or gave something impossible; the message names its global index."""

    def __init__(self, message: str, env: int | None = None) -> None:
        super().__init__(message)
        self.env = env
