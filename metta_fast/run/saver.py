"""Keeps the state of the last boundary and saves it, whatever ends the run.

    saver.take(snapshot)      at each boundary: copies, a few MB
    saver.save()              when a checkpoint is due, and at the end
    saver.save_last()         while a signal or an error ends the run

Place in the flow: trainer.py takes a snapshot at each boundary; run_writer.py writes the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metta_fast.config.keys import RunConfig
from metta_fast.run.callbacks import CallbackError
from metta_fast.run.run_writer import RunWriter
from metta_fast.run.snapshot import Score, Snapshot
from metta_fast.runtime.interval import Interval
from metta_fast.storage.state_check import check

CHECKS = 3
"""Snapshots that are checked in a session: the first of a new run has no environments, the second is the first with an
optimizer's state, and of that only the third can show whether it is a copy."""


class Saver:
    """Saves snapshots in a run's folder.

    Attributes:
        snapshot: the last one that `take` was given; None until the first boundary of a resumed run.
        score: of the rows since the last checkpoint.
    """

    def __init__(
        self,
        run: RunConfig,
        writer: RunWriter,
        saved: int,
        on_checkpoint: Callable[[Path], None],
        *,
        env: str = "the environment",
    ) -> None:
        """Saves nothing yet.

        Args:
            saved: step of the newest checkpoint, −1: none.
            on_checkpoint: called with the path of each checkpoint.
            env: the environment's name, for messages.

        """
        self._run, self._writer, self._on_checkpoint = run, writer, on_checkpoint
        self._env = env
        self._checks = CHECKS
        self._saved = saved
        self.snapshot: Snapshot | None = None
        self.score = Score()
        self.start(0)

    def start(self, epoch: int) -> None:
        """Starts counting epochs and seconds to the next checkpoint."""
        run = self._run
        self._interval = Interval(
            run.checkpoint_interval, min_s=run.min_interval_s, max_s=run.checkpoint_max_s, start=epoch
        )

    def take(self, snapshot: Snapshot) -> None:
        """Keeps the snapshot; the first ones are checked to be copies that can be saved.

        Raises:
            UserError: one is not; the snapshot before is kept.
        """
        if self._checks:
            self._checks -= 1
            before = None if self.snapshot is None else self.snapshot.states
            check(snapshot.states, before, self._env)
        self.snapshot = snapshot

    def due(self, epoch: int) -> bool:
        """Returns whether it is time for a checkpoint."""
        return self._interval.due(epoch)

    @property
    def pending(self) -> Snapshot | None:
        """The last snapshot, unless it is on disk already."""
        return None if self.snapshot is None or self.snapshot.step <= self._saved else self.snapshot

    def save(self, whole: Snapshot | None = None) -> None:
        """Saves the last snapshot, unless it is on disk already or its weights are not finite.

        Args:
            whole: the last snapshot with the states of all processes' environments; None: as it is.
        """
        snapshot = whole if self.pending is not None and whole is not None else self.pending
        if snapshot is None:
            return
        if not snapshot.finite():
            self._writer.log.warn(f"the weights at step {snapshot.step} are not finite: they are not saved")
            return
        path = self._writer.save(snapshot, self.score.value())
        self._saved = snapshot.step
        self.score.clear()
        self._interval.restart(snapshot.epoch)
        if path is not None:
            self._on_checkpoint(path)

    def save_last(self, whole: Snapshot | None = None) -> None:
        """Saves while the run ends for another reason: a callback's error is logged, not raised."""
        try:
            self.save(whole)
        except CallbackError as error:
            self._writer.log.warn(str(error))

    def go_on(self, text: str, folder: Path) -> str:
        """Returns a sentence on how to continue the run. text: how it begins."""
        if self._saved < 0:
            return "Nothing was learned yet: there is no checkpoint."
        return f"{text} at step {self._saved}; continue with resume={folder}"
