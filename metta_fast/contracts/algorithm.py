"""Defines the contract between a run and its learning algorithm, before it is built and while it trains.

    before   config, EnvSpec ─► SizeChange, MemoryPart        metta_fast/algorithms/registry.py: AlgorithmKind
    then     collect ─► update ─► boundary ─► collect …       Algorithm, in this file

Who imports it: algorithms/ implements it, run/ and resolve/ use it, inference/ reads POLICY_STATE.
No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from metta_fast.contracts.vector import VectorEnv

Metrics = dict[str, float]

POLICY_STATE = "policy"
"""Key of the policy's own `state_dict()` (weights and normalisers) in `Algorithm.state_dict()`. Evaluation, replays,
export and fine-tuning load it; a checkpoint is written only if its numbers are finite."""


@dataclass(frozen=True)
class Choice:
    """Records whether a run uses a fast path, for the log, `--explain` and the dashboard."""

    name: str
    replaces: str
    """The plain path that computes the same result."""
    why: str | None
    """The reason why it is not used; None: it is used."""
    costs_speed: bool = False
    """True: the run is slower without it. False: the reason is another device or a faster path."""


@dataclass(frozen=True)
class Idle:
    """Describes a key without an effect in a configuration; a user who typed it is told so."""

    path: str
    why: str
    cure: str
    """What else to type, or ""."""


@dataclass(frozen=True)
class SizeChange:
    """Records a value that was changed to fit the others, or that stands in the place of `auto`."""

    path: str
    value: Any
    why: str
    """For --explain."""
    tell: bool = True
    """False: --explain alone shows it, as a value that nobody gave."""


@dataclass(frozen=True)
class MemoryPart:
    """Holds the estimated size of one part of a run's memory."""

    name: str
    bytes: int
    on_gpu: bool


class Algorithm(Protocol):
    """Collects and learns. One epoch is `collect()` then `update()`; the moment after an update is a boundary.

    At a boundary every block of the vector is held, and all of the state below can be read.
    """

    steps: int
    """Agent steps so far; masked rows are not counted."""
    epoch: int
    """Updates so far."""
    notes: list[str]
    """Messages for the user; the run logs and removes them."""
    fast_paths: list[Choice]
    """Fast paths used and not used, chosen once when the algorithm is built."""

    def collect(self) -> None:
        """Steps the environments with the present policy and stores the rollout."""

    def update(self) -> None:
        """Learns, and counts the epoch and its steps."""

    def metrics(self) -> Metrics:
        """Returns the last epoch's metrics by name (loss/*, train/*, env/*). The host reads the device once for all
        of them."""

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of everything that a resume needs, except the environments: nested dicts and lists of
        tensors and plain values. `state_dict()[POLICY_STATE]` is the policy's own state."""

    def env_state(self) -> Any:
        """Returns the environments' state as of the last boundary, or a function that returns it: a copy."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state`. Load the vector's own state first; without one, new episodes start."""

    def use(self, vec: VectorEnv) -> None:
        """Continues with another vector of the same environments; `load_state_dict` follows."""

    def start_from(self, state: dict[str, Any], source: str) -> None:
        """Loads only the policy and normalisers of another run's `state`, before the first epoch.

        Args:
            source: the name of that run in messages.

        Raises:
            UserError: its weights do not fit this policy.
        """


@dataclass
class KeptState:
    """A part of a run's state that never changes: later checkpoints share its file with the first one that has it."""

    make: Callable[[], Any]
    """Returns the state: nested dicts and lists of tensors and plain values."""
    path: Path | None = None
    """Its file in the newest checkpoint that has it; None: it is not saved yet."""
    entry: dict[str, Any] | None = None
    """The file's checksum and size, as a manifest has them."""


@runtime_checkable
class KeepsStates(Protocol):
    """An algorithm with state that is too large to copy at each boundary, such as a replay buffer."""

    def kept_states(self) -> dict[str, KeptState | Callable[[], Any]]:
        """Returns states by their names (`replay-000012`), as of the last boundary: those that will never change, and
        functions for the others, which are called before the boundary after the next."""

    def load_kept(self, states: Mapping[str, KeptState]) -> None:
        """Continues from the kept states of a checkpoint; `load_state_dict` came before."""
