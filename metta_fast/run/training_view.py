"""Defines what a callback may read of a training; trainer.py's Trainer provides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from metta_fast.config.schema import Config
from metta_fast.storage.run_folder import RunDir

if TYPE_CHECKING:
    from metta_fast.policy import Policy
    from metta_fast.run.signals import Interrupt


class TrainingView(Protocol):
    @property
    def config(self) -> Config: ...

    @property
    def folder(self) -> RunDir: ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """The newest figure of each kind."""

    @property
    def failure(self) -> BaseException | None:
        """What ended the training, if it was neither its end, a callback nor a signal."""

    @property
    def policy(self) -> Policy:
        """The network that learns."""

    @property
    def steps(self) -> int:
        """Agent steps so far."""

    @property
    def epoch(self) -> int:
        """Updates so far."""

    @property
    def interrupt(self) -> Interrupt:
        """`interrupt.request(reason, exit_code)` ends the run at once, from any thread. `interrupt.check()` raises if a
        signal or a request came: a callback that takes long calls it, because signals wait for callbacks."""

    def stop(self, reason: str = ...) -> None:
        """Ends the training after this epoch, with a checkpoint."""
