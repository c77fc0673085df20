"""Creates and locks the folder of a run; the lock lets only one process write into it.

    runs/<name>/
        config.yaml      the resolved configuration
        metrics.jsonl    one row per logged epoch
        tensorboard/     the same rows as TensorBoard events
        wandb/           with wandb.mode=offline or online
        checkpoints/     see checkpoint.py
        replays/         pages that play an episode (metta_fast/episodes)
        train.log        messages with times
        lock             held (flock) while a process trains

Place in the flow: run/resume.py creates or finds it before anything starts; run/trainer.py writes into it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from metta_fast.contracts.errors import UserError
from metta_fast.machine.process_clock import process_start

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RunLocked(UserError):
    """Another process is training this run."""


def not_writable(folder: Path, error: OSError) -> UserError:
    """Returns the error for a run's folder that cannot be written."""
    return UserError(
        f"cannot write into the run's folder {folder}: {error.strerror}; choose another with run.dir=…"
    )


@dataclass
class RunDir:
    """Names the paths of one run. Call `lock()` before writing anything, and `unlock()` at the end."""

    path: Path
    _lock: IO[str] | None = None

    def __post_init__(self) -> None:
        self.name = self.path.name
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.wandb = self.path / "wandb"
        self.checkpoints = self.path / "checkpoints"
        self.replays = self.path / "replays"
        self.log = self.path / "train.log"

    def lock(self) -> None:
        """Locks the run for this process; the system releases the lock whenever the process ends.

        Raises:
            RunLocked: another process holds the lock; the message names it.
            UserError: the folder cannot be written.
        """
        try:
            file = open(self.path / "lock", "a+")  # noqa: SIM115 - held until unlock
        except OSError as error:
            raise not_writable(self.path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.readline().strip() or "another process"
            file.close()
            raise RunLocked(
                f"run {self.name} is being trained by {owner}: stop it first, "
                f"or start another run with run.name=…"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
            # A file system without locks (some bucket mounts) cannot keep two writers apart.
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\nstarted {process_start('self')}\n")
            file.flush()
        except OSError as error:
            with suppress(OSError):  # closing tries the failed write again
                file.close()
            raise not_writable(self.path, error) from error
        self._lock = file

    def remove(self) -> None:
        """Deletes the folder with its contents."""
        shutil.rmtree(self.path)

    def unlock(self) -> None:
        """Releases the lock; may be called twice."""
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None


def create(folder: str, name: str | None, env_name: str) -> RunDir:
    """Creates a new run's folder.

    Args:
        name: of the run; None: `<env>-<date>-<time>`.

    Raises:
        UserError: the name exists or is not a safe file name, or the folder cannot be created.
    """
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if name is not None:
            path = root / safe_name(str(name))
            try:
                path.mkdir()
            except FileExistsError as error:
                raise UserError(
                    f"run.name={name}: {path} exists already; continue it with resume=auto, "
                    f"or choose another name"
                ) from error
            return RunDir(path)
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", env_name).strip("-.")[:60] or "run"
        base += time.strftime("-%Y%m%d-%H%M%S")
        for number in range(1, 1000):
            path = root / (base if number == 1 else f"{base}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return RunDir(path)
        raise UserError(f"{root} holds a thousand runs named {base}: choose a name with run.name=…")
    except OSError as error:
        raise UserError(
            f"cannot create a run's folder in {root}: {error.strerror}; choose another with run.dir=…"
        ) from error


def safe_name(name: str) -> str:
    """Returns `name` if it is a single safe path component.

    Raises:
        UserError: it is not.
    """
    if not _SAFE.fullmatch(name):
        raise UserError(
            f"run.name={name!r} is not a safe folder name: use at most 100 letters, digits, '.', '_' and '-', "
            f"starting with a letter or digit"
        )
    return name


def runs(folder: str) -> list[RunDir]:
    """Lists the runs in `folder`, newest first by the last change of their checkpoints folder or configuration."""

    def written(path: Path) -> tuple[float, str]:
        files = (path / "checkpoints", path / "config.yaml")
        return max(file.stat().st_mtime for file in files if file.exists()), path.name

    root = Path(folder)
    found = [path for path in root.iterdir() if (path / "config.yaml").exists()] if root.is_dir() else []
    return [RunDir(path) for path in sorted(found, key=written, reverse=True)]
