"""What a run leaves and shows: the files of its folder, train.log, rows of metrics, the screen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
import yaml

from metta_fast import __version__, checkpoint
from metta_fast.config import config_to_dict
from metta_fast.dashboard import make_dashboard
from metta_fast.errors import UserError
from metta_fast.loggers import JsonlLogger, Logger, Row, TensorBoardLogger, read_rows
from metta_fast.resolve import Resolved
from metta_fast.run_dir import RunDir
from metta_fast.run_log import RunLog


class Record:
    """Open in a locked folder until `closing` closes it.

    Of a resumed run what lies after the checkpoint of step `saved` is put aside; `saved` −1: there is none.

    Raises:
        UserError: the folder is locked by another run, or cannot be written.
    """

    def __init__(self, resolved: Resolved, folder: RunDir, saved: int, closing: ExitStack) -> None:
        config = resolved.config
        folder.lock()
        closing.callback(folder.unlock)
        self._closing = closing
        self._loggers: list[Logger] = []
        try:
            folder.checkpoints.mkdir(exist_ok=True)
            checkpoint.clear_unfinished(folder.checkpoints)
            aside = checkpoint.set_aside(folder.checkpoints, saved)
            resume_step = max(saved, 0) if folder.config.exists() else None
            folder.config.write_text(
                yaml.safe_dump(config_to_dict(config), sort_keys=False, allow_unicode=True)
            )
            self.add(JsonlLogger(folder.metrics, resume_step))
            if config.run.tensorboard:
                self.add(TensorBoardLogger(folder.tensorboard, resume_step))
        except OSError as error:
            raise UserError(
                f"cannot write into the run's folder {folder.path}: {error.strerror}; "
                f"give another with run.dir=…"
            ) from error
        curve = [row["env/return"] for row in read_rows(folder.metrics) if row.get("env/return") is not None]
        self._dashboard = make_dashboard(
            config.run.dashboard, title=folder.name, curve=curve, total_steps=config.trainer.total_timesteps
        )
        closing.callback(self._dashboard.close)
        self.log = RunLog(folder.log, self._dashboard.message)
        closing.callback(self.log.close)
        self.log.note(f"metta_fast {__version__}, torch {torch.__version__}, device {config.trainer.device}")
        for text in resolved.notes:
            self.log.say(text)
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

    def end(self, text: str) -> None:
        """The last word on the screen, below the last figures."""
        self._dashboard.close()
        self.log.say(text)
