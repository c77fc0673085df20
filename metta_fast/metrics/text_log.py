"""Logs a run's messages to train.log, with times, and to the screen.

Any module may use `logging.getLogger("metta_fast.…")`. During a run, records of level INFO and above go to the screen
and to train.log; records of level DETAIL go to train.log only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from metta_fast.contracts.printable import printable

DETAIL = 15
"""Level of lines for train.log only."""


class RunLog:
    """Writes `say` and `warn` to the screen and the file, `note` to the file only. Close it at the run's end."""

    def __init__(self, path: Path, show: Callable[[str], None]) -> None:
        self._logger = logging.getLogger("metta_fast")
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.setLevel(DETAIL)
        self._logger.propagate = False
        file = _File(path, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        screen = _Screen(show)
        screen.setLevel(logging.INFO)
        self._handlers = (file, screen)
        for handler in self._handlers:
            self._logger.addHandler(handler)

    def say(self, text: str) -> None:
        self._logger.info(text)

    def note(self, text: str) -> None:
        self._logger.log(DETAIL, text)

    def warn(self, text: str) -> None:
        self._logger.warning("warning: %s", text)

    def close(self) -> None:
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            handler.close()
        self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]


class _File(logging.FileHandler):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

    def _open(self) -> TextIOWrapper:
        """Opens the file; a link is not followed."""
        file = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        return open(file, "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignores a full disk: writing metrics or the checkpoint reports it and ends the run."""

    def close(self) -> None:
        with suppress(OSError):  # closing tries the failed write again
            super().close()


class _Screen(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(printable(record.getMessage()))
