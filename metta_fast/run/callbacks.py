"""Calls a user's own code between the epochs of a training.

    class Upload(metta_fast.Callback):
        def on_checkpoint(self, trainer, path):
            copy_somewhere(path)

    metta_fast.train(env="grid_solo", callbacks=[Upload()])

Place in the flow: train_function.py's `train` takes them; trainer.py calls them at its boundaries, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    from metta_fast.run.training_view import TrainingView as Trainer


class Callback:
    """Subclass it and write the methods that you need. They are called between epochs, in the trainer's thread.

    Read `config`, `folder`, `policy`, `steps`, `epoch` and `metrics` of `trainer`. `trainer.stop("reason")` ends the
    training after this epoch, with a checkpoint. An exception ends it too, as a CallbackError, after the last good
    state was saved. Signals wait until a method returns: a long one calls `trainer.interrupt.check()` now and then.
    """

    def on_start(self, trainer: Trainer) -> None:
        """Called when everything is built (and resumed), before the first epoch."""

    def on_epoch(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """Called every `run.log_interval` epochs with the row of metrics, by their fixed names."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """Called when a checkpoint is complete and in place."""

    def on_end(self, trainer: Trainer) -> None:
        """Called when the training has ended, for any reason; `trainer.failure` is the error, or None."""


class CallbackError(RuntimeError):
    """A callback raised: the message names the callback, `__cause__` is its exception."""


class Callbacks:
    """Calls several callbacks in order. Each method raises CallbackError.

    Raises:
        UserError: one of them is no Callback.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        for one in callbacks:
            if not isinstance(one, Callback):
                hint = f"; give an instance, {one.__name__}()" if isinstance(one, type) else ""
                raise UserError(f"callbacks: {one!r} is not a metta_fast.Callback{hint}")
        self._callbacks = list(callbacks)

    def start(self, trainer: Trainer) -> None:
        self._each("on_start", lambda one: one.on_start(trainer))

    def epoch(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        self._each("on_epoch", lambda one: one.on_epoch(trainer, dict(metrics)))

    def checkpoint(self, trainer: Trainer, path: Path) -> None:
        self._each("on_checkpoint", lambda one: one.on_checkpoint(trainer, path))

    def end(self, trainer: Trainer) -> None:
        """Calls every callback even if some raise, then raises the first error."""
        errors = []
        for one in self._callbacks:
            try:
                _call(one, "on_end", lambda one: one.on_end(trainer))
            except CallbackError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _each(self, name: str, call: Callable[[Callback], None]) -> None:
        for one in self._callbacks:
            _call(one, name, call)


def _call(one: Callback, name: str, call: Callable[[Callback], None]) -> None:
    try:
        call(one)
    except Exception as error:
        raise CallbackError(
            f"callback {type(one).__qualname__}.{name} raised {type(error).__name__}: {error}"
        ) from error
