"""Brings a run's newest complete state, and its other files, from remote storage into a run's folder.

Files are written beside and renamed into place, and each part is verified, so that an interrupted fetch leaves nothing
that counts. A state that turns out to be damaged is skipped with a warning for the one before it.

Place in the flow: run/take_over/remote_run.py continues runs by it; cache.py fetches what `eval` names by URL.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from metta_fast.contracts.errors import UserError
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.durable import make_folders, sync_folder
from metta_fast.storage.remote.files import RemoteError
from metta_fast.storage.remote.manifest import DamagedManifest, Part, State
from metta_fast.storage.remote.run_store import METRICS, RunStore
from metta_fast.storage.run_folder import RunDir


class DamagedPart(Exception):
    """A part has other bytes than its name says, or is gone."""


def newest(
    store: RunStore, after: int, warn: Callable[[str], None], use: Callable[[State], Path]
) -> Path | None:
    """Fetches the newest complete state of a later step than `after`.

    Args:
        warn: called with a text for each that is skipped.
        use: fetches one, and returns where it is; it may raise DamagedPart.
    """
    for step in reversed(store.steps()):
        if step <= after:
            return None
        try:
            return use(store.state(step))
        except (DamagedManifest, DamagedPart) as error:
            warn(f"incomplete state skipped: {store.address}, step {step}: {error}")
    return None


def fetch_state(store: RunStore, state: State, folder: RunDir, *, metrics: bool = True) -> Path:
    """Writes a state into the run's checkpoints, and its rows of metrics in place of the folder's.

    Raises:
        DamagedPart: a part is damaged; nothing was written.
        UserError: the folder cannot be written.
    """
    target = folder.checkpoints / f"step_{state.step:012d}"
    beside = folder.checkpoints / f".writing-{target.name}-{os.getpid()}"
    try:
        shutil.rmtree(beside, ignore_errors=True)
        make_folders(beside)
        for name, parts in state.files.items():
            if name != METRICS:
                _write(store, parts, beside / name)
        sync_folder(beside)
        if metrics and METRICS in state.files:
            with whole(folder.metrics) as rows:
                _write(store, state.files[METRICS], rows)
        if target.exists():
            target.rename(folder.checkpoints / f"replaced-{target.name}-{time.time_ns()}")
        beside.rename(target)
        sync_folder(folder.checkpoints)
    except OSError as error:
        raise UserError(
            f"cannot write the state of {store.address} into {folder.path}: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _write(store: RunStore, parts: tuple[Part, ...], path: Path) -> None:
    """Writes a file from its parts, and flushes it to disk."""
    with open(path, "wb") as file:
        for part in parts:
            try:
                data = store.files.read(f"parts/{part.sha256}")
            except RemoteError as error:
                if error.kind != "missing":
                    raise
                raise DamagedPart(f"part {part.sha256} of {path.name} is gone") from error
            if hashlib.sha256(data).hexdigest() != part.sha256:
                raise DamagedPart(f"part {part.sha256} of {path.name} is damaged")
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def fetch_files(store: RunStore, folder: RunDir) -> list[str]:
    """Writes the run's other files into its folder, as far as they are not there; rows of metrics come with a state.

    Returns:
        Texts on files that were left out.
    """
    problems = list[str]()
    for name in sorted(store.files.sizes("files")):
        if not is_safe(name):
            problems.append(f"a file with an unsafe name was left out: {name[:80]!r}")
            continue
        path = folder.path / name
        if name == METRICS or os.path.lexists(path):
            continue
        try:
            data = store.files.read(f"files/{name}")
            make_folders(path.parent)
            with whole(path) as beside:
                beside.write_bytes(data)
        except RemoteError as error:
            if error.kind != "missing":  # removed meanwhile
                raise
        except OSError as error:
            problems.append(f"{path} cannot be written: {error.strerror}")
    return problems


def is_safe(name: str) -> bool:
    """Returns whether a file of remote storage may be written below a run's folder under its name."""
    parts = PurePosixPath(name).parts
    return (
        bool(parts)
        and name.isprintable()
        and "\\" not in name
        and not name.startswith("/")
        and parts[0] not in ("checkpoints", "lock")
        and not any(part.startswith(".") or len(part) > 200 for part in parts)
    )
