"""The contract of a learning algorithm: what a run asks of one before it is built, and while it trains.

    before   config, EnvSpec ─► SizeChange, MemoryPart        metta_fast/algorithms/registry.py: AlgorithmKind
    then     collect ─► update ─► boundary ─► collect …       Algorithm, in this file

Who imports it: algorithms/ implements it, run/ and resolve/ use it, inference/ reads the promised part of its state.
No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from metta_fast.contracts.vector import VectorEnv

Metrics = dict[str, float]

POLICY_STATE = "policy"
"""The part of `Algorithm.state_dict()` that others read: the policy's own `state_dict()`, weights and normalisers.
Evaluation, replays, export and fine-tuning load it; a checkpoint is written only if its numbers are finite."""


@dataclass(frozen=True)
class Choice:
    """Whether a fast path is used in a run, for the log, `--explain` and the dashboard."""

    name: str
    replaces: str
    """The plain path that computes the same."""
    why: str | None
    """Why it is not used, as a sentence; None: it is used."""
    costs_speed: bool = False
    """The run is slower without it: the reason is neither another device nor a faster path."""


@dataclass(frozen=True)
class SizeChange:
    """A size that was fitted to the others."""

    path: str
    value: int
    why: str
    """For --explain."""


@dataclass(frozen=True)
class MemoryPart:
    """One user of memory."""

    name: str
    bytes: int
    on_gpu: bool


class Algorithm(Protocol):
    """Collects and learns. One epoch is `collect()` then `update()`; the moment after an update is a boundary.

    At a boundary every block of the vector is held, and all of the state below can be taken.
    """

    steps: int
    """Agent steps so far; masked rows are not counted."""
    epoch: int
    """Updates so far."""
    notes: list[str]
    """What the user should be told; the run empties it."""
    fast_paths: list[Choice]
    """Fast paths used and not used, chosen once when the algorithm is built."""

    def collect(self) -> None:
        """Steps the environments under the present policy and keeps what is needed to learn."""

    def update(self) -> None:
        """Learns, and counts the epoch and its steps."""

    def metrics(self) -> Metrics:
        """Returns the last epoch's figures by their fixed names (loss/*, train/*, env/*): one host read for all."""

    def state_dict(self) -> dict[str, Any]:
        """Returns everything a resume needs but the environments: nested dicts and lists of tensors and plain values,
        copied. `state_dict()[POLICY_STATE]` is the policy's own state."""

    def env_state(self) -> Any:
        """Returns the environments' state as of the last boundary, or a function that returns it: a copy."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state`. The vector's own state is loaded before; without one, episodes start anew."""

    def use(self, vec: VectorEnv) -> None:
        """Continues with another vector of the same environments; `load_state_dict` follows."""

    def start_from(self, state: dict[str, Any], source: str) -> None:
        """Takes the policy and normalisers of another run's `state`, and nothing else, before the first epoch.

        Args:
            source: how a message names that run.

        Raises:
            UserError: its weights do not fit this policy.
        """
