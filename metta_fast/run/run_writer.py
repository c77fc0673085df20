"""What a run leaves and shows: the files of its folder, train.log, rows of metrics, the screen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
import yaml

from metta_fast.config.keys import config_to_dict
from metta_fast.metrics.dashboard import make_dashboard
from metta_fast.metrics.loggers import JsonlLogger, Later, Logger, Row, TensorBoardLogger, read_rows
from metta_fast.metrics.text_log import RunLog
from metta_fast.resolve.resolve import Resolved
from metta_fast.storage import checkpoint
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.run_folder import RunDir, not_writable
from metta_fast.version import __version__


class Record:
    """Open in a locked folder until `closing` closes it.

    Of a resumed run what lies after the checkpoint of step `saved` is put aside; `saved` −1: there is none.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, resolved: Resolved, folder: RunDir, saved: int, closing: ExitStack) -> None:
        config = resolved.config
        self._closing = closing
        self._loggers: list[Logger] = []
        try:
            folder.checkpoints.mkdir(exist_ok=True)
            checkpoint.clear_unfinished(folder.checkpoints)
            aside = checkpoint.set_aside(folder.checkpoints, saved)
            resume_step = max(saved, 0) if folder.config.exists() else None
            text = yaml.safe_dump(config_to_dict(config), sort_keys=False, allow_unicode=True)
            with whole(folder.config) as beside:
                beside.write_text(text, encoding="utf-8")
            self._metrics = JsonlLogger(folder.metrics, resume_step)
            self.add(self._metrics)
            if config.run.tensorboard:
                folder.tensorboard.mkdir(exist_ok=True)
                self.add(Later(lambda: TensorBoardLogger(folder.tensorboard, resume_step)))
            curve = [
                row["env/return"] for row in read_rows(folder.metrics) if row.get("env/return") is not None
            ]
            self._dashboard = make_dashboard(
                config.run.dashboard,
                title=folder.name,
                curve=curve,
                total_steps=config.trainer.total_timesteps,
            )
            closing.callback(self._dashboard.close)
            self.log = RunLog(folder.log, self._dashboard.message)
        except OSError as error:
            raise not_writable(folder.path, error) from error
        closing.callback(self.log.close)
        self.log.note(f"metta_fast {__version__}, torch {torch.__version__}, device {config.trainer.device}")
        for text in resolved.notes:
            self.log.say(text)
        if self._metrics.damaged_after is not None:
            self.log.warn(
                f"{folder.metrics} is damaged after step {self._metrics.damaged_after}; what followed is cut off"
            )
        for path in aside:
            self.log.warn(f"a checkpoint after step {saved} was put aside: {path}")

    def add(self, logger: Logger, close: Callable[[], None] | None = None) -> None:
        """Rows go there as well from now on. close: instead of the logger's."""
        self._loggers.append(logger)
        self._closing.callback(close or logger.close)

    def write(self, step: int, row: Row) -> None:
        for logger in self._loggers:
            logger.write(step, row)
        self._dashboard.update(row)

    def sync(self) -> None:
        """The rows of metrics onto the disk."""
        self._metrics.sync()

    def end(self, text: str) -> None:
        """The last word on the screen, below the last figures."""
        self._dashboard.close()
        self.log.say(text)
