"""Creates, names and lists the folders of runs.

    runs/<name>/
        config.yaml      the resolved configuration
        id               tells its checkpoints from those of other runs (run_identity.py)
        metrics.jsonl    one row per logged epoch
        events.out.…     the same rows as TensorBoard events (in tensorboard/ in older runs)
        wandb/           with wandb.mode=offline or online
        checkpoints/     see checkpoint.py
        replays/         pages that play an episode (metta_fast/episodes)
        train.log        messages with times
        summary.json     the machine time used, steps per hour (metrics/machine_time.py)
        lock             held while a process trains (run_lock.py)

Place in the flow: run/resume.py creates or finds it before anything starts; run/trainer.py writes into it.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.storage.durable import make_folders, sync_folder, unusual
from metta_fast.storage.run_lock import RunLock

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass
class RunDir:
    """Names the paths of one run. Call `lock()` before writing anything, and `unlock()` at the end."""

    path: Path

    def __post_init__(self) -> None:
        self.name = self.path.name
        self.config = self.path / "config.yaml"
        self.id = self.path / "id"
        self.metrics = self.path / "metrics.jsonl"
        older = self.path / "tensorboard"
        self.tensorboard = older if older.is_dir() and not older.is_symlink() else self.path
        """Folder of the events: the run's own, since TensorBoard names a run by it."""
        self.wandb = self.path / "wandb"
        self.checkpoints = self.path / "checkpoints"
        self.replays = self.path / "replays"
        self.log = self.path / "train.log"
        self._lock = RunLock(self.path / "lock", self.name)

    def lock(self) -> None:
        """Locks the run for this process; the system releases the lock whenever the process ends.

        Raises:
            RunLocked: another process holds the lock, or this one for another run; the message names it.
            UserError: the folder cannot be written or locked, or something in it is a link.
        """
        self.check_links()
        self._lock.take()

    def check_links(self) -> None:
        """Checks that the run's own files and folders are what they seem: a link could lead to any file of the user.

        Raises:
            UserError: one is a link, a device or the like.
        """
        files = [self.path / "lock", self.config, self.id, self.metrics, self.log, self.wandb / "id"]
        files += [self.path / "weights_start.pt", self.path / "summary.json"]
        folders = [
            self.checkpoints,
            self.wandb,
            self.replays,
            self.path / "tensorboard",
            self.path / "traces",
        ]
        for path in (*folders, *files):
            what = unusual(path, folder=path in folders)
            if what not in (None, "a folder", "a file"):
                kind = "folder" if path in folders else "file"
                raise UserError(
                    f"{path} is {what}, expected a {kind}: nothing in a run's folder is followed elsewhere; replace it "
                    f"by the {kind} itself, or remove it"
                )

    @property
    def locked(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.held

    def remove(self) -> None:
        """Deletes the folder with its contents."""
        shutil.rmtree(self.path)

    def unlock(self) -> None:
        """Releases the lock; may be called twice."""
        self._lock.release()


def create(folder: str, name: str | None, env_name: str) -> RunDir:
    """Creates a new run's folder.

    Args:
        name: of the run; None: `<env>-<date>-<time>`.

    Raises:
        UserError: the name exists or is not a safe file name, or the folder cannot be created.
    """
    root = Path(folder)
    try:
        make_folders(root)
        if name is not None:
            path = root / safe_name(str(name))
            try:
                path.mkdir()
            except FileExistsError as error:
                raise UserError(
                    f"run.name={name}: {path} exists already; continue it with resume=auto, "
                    f"or choose another name"
                ) from error
            sync_folder(root)
            return RunDir(path)
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", env_name).strip("-.")[:60] or "run"
        base += time.strftime("-%Y%m%d-%H%M%S")
        for number in range(1, 1000):
            path = root / (base if number == 1 else f"{base}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            sync_folder(root)
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
    """Lists the runs in `folder`, newest first by the last change of their checkpoints folder or configuration.

    Folders that cannot be read, or that are removed meanwhile, are left out.

    Raises:
        UserError: `folder` itself cannot be read.
    """

    def changed(path: Path) -> float | None:
        try:
            config = (path / "config.yaml").stat().st_mtime
        except OSError:
            return None
        with suppress(OSError):
            return max(config, (path / "checkpoints").stat().st_mtime)
        return config

    try:
        paths = list(Path(folder).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(
            f"cannot read the folder of runs {folder}: {error.strerror}; choose another with run.dir=…"
        ) from error
    dated = [(when, path.name, path) for path in paths if (when := changed(path)) is not None]
    return [RunDir(path) for _, _, path in sorted(dated, reverse=True)]


def find_folders(named: str, root: str) -> Iterator[Path]:
    """Yields the folder `named`, then the one of that name in `root`, as far as they exist and can be read."""
    for path in (Path(named), Path(root) / named):
        with suppress(OSError, RuntimeError):  # a name too long, a folder above closed to us; ~ of nobody
            if (found := path.expanduser()).is_dir():
                yield found
