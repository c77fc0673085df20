"""Writes a run's output: configuration, train.log, metrics, checkpoints, replays, dashboard. Only rank 0 writes.

    with ExitStack() as closing:
        claim(folder, is_unused, closing)      # at rank 0
        writer = RunWriter(resolved, folder, saved, closing, rank=0)
        writer.write(step, row)                # metrics.jsonl, TensorBoard, W&B, dashboard
        writer.save(snapshot, score)           # a checkpoint
        writer.log.say("…")                    # train.log and the screen

Place in the flow: trainer.py opens it. The writer of another rank has the same methods and writes
nothing: several processes of one run share one folder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml

from metta_fast.config.keys import Config, config_to_dict
from metta_fast.config.trust import mark
from metta_fast.contracts.algorithm import Choice
from metta_fast.contracts.env_answers import rules_digest
from metta_fast.contracts.errors import UserError
from metta_fast.metrics.dashboard import Dashboard, NoDashboard, make_dashboard
from metta_fast.metrics.loggers import JsonlLogger, Later, Logger, Row, TensorBoardLogger, read_rows
from metta_fast.metrics.machine_time import META, MachineTime
from metta_fast.metrics.text_log import RunLog
from metta_fast.resolve.resolve import Resolved
from metta_fast.run.snapshot import Snapshot
from metta_fast.run.take_over.remote_run import RemoteRun
from metta_fast.runtime.fast_paths import in_words, missed
from metta_fast.storage import checkpoint
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.durable import sync_folder
from metta_fast.storage.encoding import UnsavableState
from metta_fast.storage.remote.uploads import Uploads
from metta_fast.storage.run_folder import RunDir
from metta_fast.storage.run_identity import RUN_ID, identify
from metta_fast.storage.run_lock import RunLocked, not_writable
from metta_fast.storage.state_check import unsavable
from metta_fast.version import __version__

LOG = logging.getLogger("metta_fast.run.run_writer")
LONGEST_UPLOAD_S = 3600.0
"""Seconds that a trained run waits for its uploads at most."""
QUIET_UPLOAD_S = 60.0
"""It waits no longer once remote storage has done nothing for so many seconds."""


class Log(Protocol):
    """Takes lines of text: `say` and `warn` for the screen and train.log, `note` for train.log alone."""

    def say(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...


class NoLog:
    """Drops every line."""

    def say(self, text: str) -> None:
        return

    note = warn = say


class RunWriter:
    """Writes until `closing` closes it.

    Attributes:
        writes: whether this process writes (rank 0); others must not write into the run's folder either.
        log: the run's log.
    """

    def __init__(
        self,
        resolved: Resolved,
        folder: RunDir,
        saved: int,
        closing: ExitStack,
        *,
        rank: int = 0,
        begin: bool = True,
        spent: MachineTime | None = None,
        remote: RemoteRun | None = None,
    ) -> None:
        """Opens the log, at rank 0.

        Args:
            remote: where the run is uploaded.
            spent: the machine time, which checkpoints keep and summary.json shows.
            begin: call `begin` at once. Until then, nothing of an earlier session is changed.
            folder: locked by this process, if it writes.
            saved: step of the checkpoint that a resumed run starts from; later checkpoints and rows are put aside.
                −1: there is none.

        Raises:
            UserError: the folder cannot be written.
        """
        self.writes = rank == 0
        self._resolved, self._folder, self._closing = resolved, folder, closing
        self._loggers: list[Logger] = []
        self._metrics: JsonlLogger | None = None
        self._dashboard: Dashboard = NoDashboard()
        self.log: Log = NoLog()
        self._warned: set[str] = set()
        self._saved, self._spent = saved, spent
        self._remote = remote
        self._uploads: Uploads | None = None
        self._missed: Sequence[str] = ()
        if self.writes:
            try:
                self._open_log()
            except OSError as error:
                raise not_writable(folder.path, error) from error
        self._begun = False
        if begin:
            self.begin()
        self._say_first_lines()

    def _open_log(self) -> None:
        log = RunLog(self._folder.log, lambda text: self._dashboard.message(text))
        self.log = log
        self._closing.callback(log.close)

    def _say_first_lines(self) -> None:
        self.log.note(
            f"metta_fast {__version__}, torch {torch.__version__}, device {self._resolved.config.trainer.device}"
        )
        for text in self._resolved.notes:
            self.log.say(text)

    def begin(self) -> None:
        """Opens the other outputs, at rank 0, and puts aside what is later than the checkpoint of a resume. Call it
        when the run is built and its state is loaded: from here on, it differs from the session before. It may be
        called twice.

        Raises:
            UserError: the folder cannot be written.
        """
        if self.writes and not self._begun:
            self._begun = True
            try:
                self._begin(self._saved)
            except OSError as error:
                raise not_writable(self._folder.path, error) from error

    def _begin(self, saved: int) -> None:
        config, folder = self._resolved.config, self._folder
        folder.checkpoints.mkdir(exist_ok=True)
        problems = checkpoint.clear_unfinished(folder.checkpoints)
        aside = checkpoint.set_aside(folder.checkpoints, saved)
        resume_step = max(saved, 0) if folder.config.exists() else None
        self._run_id = identify(folder)
        text = yaml.safe_dump(config_to_dict(config), sort_keys=False, allow_unicode=True)
        with whole(folder.config) as beside:
            beside.write_text(text, encoding="utf-8")
        self._metrics = metrics = JsonlLogger(folder.metrics, resume_step)
        self.add(metrics)
        if config.run.tensorboard:
            self.add(Later(lambda: TensorBoardLogger(folder.tensorboard, resume_step)))
        self._dashboard = _dashboard(config, folder)
        self._dashboard.slower_without(self._missed)
        self._closing.callback(self._dashboard.close)
        sync_folder(folder.path)
        if self._spent is not None and self._spent.problem is not None:
            self.log.warn(self._spent.problem)
        self._summarise(max(saved, 0))
        self._say_what_was_put_aside(metrics, aside, saved)
        self._warn_once(problems)
        if self._remote is not None:
            self._uploads = Uploads(
                self._remote.store,
                self._remote.lease,
                folder,
                self._run_id,
                saved=saved,
                keep=config.run.keep_checkpoints,
            )
            self._closing.callback(self._uploads.close)

    def _say_what_was_put_aside(self, metrics: JsonlLogger, aside: list[Path], saved: int) -> None:
        if metrics.damaged_after is not None:
            self.log.warn(
                f"{metrics.path} is damaged after step {metrics.damaged_after}; the rows after it were removed"
                + (f" and are in {metrics.aside}" if metrics.aside else "")
            )
        elif metrics.aside is not None:
            self.log.say(f"rows of metrics after step {max(saved, 0)} were put aside: {metrics.aside}")
        for path in aside:
            self.log.warn(f"a checkpoint after step {saved} was put aside: {path}")

    def fast_paths(self, choices: Sequence[Choice]) -> None:
        """Logs which fast paths the run takes, and shows those whose absence costs speed."""
        for text in in_words(choices):
            self.log.note(text)
        self._missed = missed(choices)
        self._dashboard.slower_without(self._missed)

    def add(self, logger: Logger, close: Callable[[], None] | None = None) -> None:
        """Adds a logger of rows. close: called at the end instead of the logger's own."""
        self._loggers.append(logger)
        self._closing.callback(close or logger.close)

    def open_wandb(self, exit_code: Callable[[], int]) -> None:
        """Logs to Weights & Biases as well, as configured. exit_code: asked at the end."""
        config = self._resolved.config
        if self.writes and config.wandb.mode != "disabled":
            from metta_fast.metrics.wandb_logger import WandbLogger

            logger = WandbLogger(config, self._folder)
            self.add(logger, lambda: logger.close(exit_code()))

    def write(self, step: int, row: Row) -> None:
        """Writes a row of metrics."""
        for logger in self._loggers:
            logger.write(step, row)
        if self.writes:
            self._dashboard.update(row)

    def moved(self, steps: int) -> None:
        """Shows the number of steps so far, within an epoch."""
        self._dashboard.moved(steps)

    def save(self, snapshot: Snapshot, score: dict[str, Any] | None) -> Path | None:
        """Writes a checkpoint and removes old ones. Returns its path, or None if this process does not write.

        Args:
            score: {"name": "eval/return" or "env/return", "value": …}, by which checkpoints are compared.

        Raises:
            UserError: the disk is full or not writable.
        """
        if not self.writes or self._metrics is None:
            return None
        config = self._resolved.config
        meta = {
            RUN_ID: self._run_id,
            "epoch": snapshot.epoch,
            "seconds": snapshot.seconds,
            "score": score,
            "config": config_to_dict(config),
            "code": mark(config_to_dict(config)),
            "rules": rules_digest(self._resolved.factory),
            "origins": self._resolved.origins,
            "groups": self._resolved.groups,
            "version": __version__,
            "torch": torch.__version__,
        }
        if self._spent is not None:
            meta[META] = self._spent.state(snapshot.step)
        self._metrics.sync()
        path = self._save(snapshot, meta)
        self._saved = snapshot.step
        self._summarise(snapshot.step)
        if self._uploads is not None:
            self._uploads.state(path, snapshot.step)
        self._prune()
        self.log.note(f"checkpoint {path}")
        return path

    def _save(self, snapshot: Snapshot, meta: dict[str, Any]) -> Path:
        """Writes the checkpoint; without the environments' state if that has become one that cannot be saved."""
        folder, states = self._folder.checkpoints, snapshot.states
        try:
            return checkpoint.save(folder, snapshot.step, states, meta)
        except UnsavableState as error:
            if not error.path.startswith("env"):
                raise unsavable(error, self._resolved.config.env.name) from error
            self.log.warn(
                f"checkpoint of step {snapshot.step}: the state of the environments is left out, because "
                f"{unsavable(error, self._resolved.config.env.name)}. A run that continues from this checkpoint "
                "starts new episodes"
            )
        return checkpoint.save(folder, snapshot.step, states | {"env": None}, meta)

    def _prune(self) -> None:
        """Deletes old checkpoints, but none that is being uploaded."""
        held = frozenset[Path]() if self._uploads is None else self._uploads.held()
        keep = self._resolved.config.run.keep_checkpoints
        self._warn_once(checkpoint.prune(self._folder.checkpoints, keep, held))

    def news(self) -> None:
        """Logs what came of uploads since the last call."""
        if self._uploads is not None:
            for text in self._uploads.news():
                self.log.warn(text)

    def _warn_once(self, problems: list[str], what: str = "an old checkpoint cannot be removed") -> None:
        """Logs what could not be done to the run's files, each once."""
        for text in problems:
            if text not in self._warned:
                self._warned.add(text)
                self.log.warn(f"{what}: {text}")

    def _summarise(self, step: int) -> None:
        """Writes summary.json, at rank 0. A file that cannot be written is a warning: it holds no state."""
        if self._spent is None or not self.writes:
            return
        try:
            self._spent.write(step)
        except OSError as error:
            self._warn_once([str(error.strerror)], "summary.json cannot be written")

    def end(self, text: str, seconds: float | None = None, hurry: Callable[[], bool] = lambda: False) -> None:
        """Shows the last lines, below the last figures: the machine time, and `text`; then waits for uploads.

        Args:
            seconds: until this process is killed; None: nobody will.
            hurry: asked while uploads are waited for: whether the user wants the process to end.
        """
        if self.writes:
            self._dashboard.close()
        if self._spent is not None and self._begun and self._saved > 0:
            self._summarise(self._saved)
            for line in self._spent.lines(self._saved):
                self.log.say(line)
        self.log.say(text)
        self._finish_uploads(seconds, hurry)

    def _finish_uploads(self, seconds: float | None, hurry: Callable[[], bool]) -> None:
        """Waits until the newest state and all files are uploaded, or says which are not."""
        if self._uploads is None:
            return
        self.news()
        for logger in self._loggers:
            if isinstance(logger, JsonlLogger):
                logger.sync()
        finished, text = self._uploads.finish(
            LONGEST_UPLOAD_S if seconds is None else seconds, QUIET_UPLOAD_S, hurry
        )
        self.news()
        (self.log.say if finished else self.log.warn)(text)
        self._prune()


def _dashboard(config: Config, folder: RunDir) -> Dashboard:
    """Returns the run's dashboard with the curve of the rows so far."""
    returns = (row.get("env/return") for row in read_rows(folder.metrics))
    return make_dashboard(
        config.run.dashboard,
        title=folder.name,
        curve=[value for value in returns if isinstance(value, (int, float))],
        total_steps=config.trainer.total_timesteps,
    )


def claim(folder: RunDir, is_unused: Callable[[], bool], closing: ExitStack) -> None:
    """Locks the folder until `closing` closes. It is removed then if it is still unused.

    Args:
        is_unused: whether the folder is new and nothing was trained in it.

    Raises:
        UserError: another process trains in it, or it cannot be written.
    """

    def remove_unused() -> None:
        if not is_unused():
            return
        try:
            folder.remove()
        except OSError as error:  # NFS keeps a removed file's place while it is open
            LOG.warning("warning: the unused folder %s cannot be removed: %s", folder.path, error.strerror)

    try:
        if not folder.locked:  # run/resume.py locks a run that it continues
            folder.lock()
    except RunLocked:
        raise  # another process was quicker: it is that one's now
    except UserError:
        remove_unused()
        raise
    closing.callback(folder.unlock)
    closing.callback(remove_unused)
