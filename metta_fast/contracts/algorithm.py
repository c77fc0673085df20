"""What the trainer knows of an algorithm: collect, update, state_dict. PPO is the first (metta_fast/algorithms/ppo)."""

from __future__ import annotations

from typing import Any, Protocol

from metta_fast.contracts.vector import VectorEnv

Metrics = dict[str, float]


class Algorithm(Protocol):
    """One epoch is `collect()` then `update()`. The moment after an update is a boundary: every block is held."""

    steps: int
    """Agent steps so far; masked rows are not counted."""
    epoch: int
    notes: list[str]
    """What the user should be told; the trainer empties it."""

    def collect(self) -> None:
        """Fill the buffers with one rollout under the present policy."""

    def update(self) -> None:
        """Learn from the buffers."""

    def metrics(self) -> Metrics:
        """Figures of the last epoch by their fixed names (loss/*, train/*, env/*): one host read for all."""

    def state_dict(self) -> dict[str, Any]:
        """Policy, optimizer, schedule, normalisers, counters, RNG: tensors and plain values, copied."""

    def env_state(self) -> Any:
        """State of the environments as of the last boundary, or a function that gives it: a copy."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def use(self, vec: VectorEnv) -> None:
        """Go on with another vector of the same environments; `load_state_dict` follows."""

    def start_from(self, state: dict[str, Any], source: str) -> None:
        """Before the first epoch: take policy and normalisers from another run's `state`, and nothing else.

        Args:
            source: what names that run, for the message.

        Raises:
            UserError: its weights are not this policy's.
        """
