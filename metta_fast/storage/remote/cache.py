"""Fetches the state that a command names by URL into a cache, as an ordinary run's folder.

    local = cached("s3://bucket/runs/job", best=False, warn=print)      → ~/.cache/metta_fast/remote/<…>/job

Place in the flow: inference/evaluate.py (eval, replay, export, load_policy) and run/resume.py (init_from) call it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from metta_fast.contracts.errors import Unreachable, UserError
from metta_fast.storage import checkpoint
from metta_fast.storage.checkpoint import highest_score
from metta_fast.storage.durable import make_folders
from metta_fast.storage.remote.address import Address, is_url, parse
from metta_fast.storage.remote.fetch import DamagedPart, fetch_files, fetch_state, newest
from metta_fast.storage.remote.files import RemoteError, refused
from metta_fast.storage.remote.manifest import DamagedManifest
from metta_fast.storage.remote.open_files import open_files
from metta_fast.storage.remote.run_store import RunStore
from metta_fast.storage.run_folder import RunDir

KEEP = 3
"""Fetched states of a run that stay in the cache."""
_STEP = re.compile(r"step_(\d{1,18})(?:\.json)?")


def is_remote(text: str) -> bool:
    """Returns whether a text names a run in remote storage: a URL, or a folder of that layout."""
    if is_url(text):
        return True
    try:
        folder = Path(text).expanduser()
        if _STEP.fullmatch(folder.name):
            folder = folder.parent.parent
        return (folder / "id.json").is_file() and not (folder / "config.yaml").exists()
    except (OSError, RuntimeError, ValueError):
        return False


def run_and_step(text: str, key: str) -> tuple[Address, int | None]:
    """Returns the address of a run, and the step if the text names one of its states (…/states/step_000000000123).

    Raises:
        UserError: it is no address.
    """
    address = parse(text, key)
    match = _STEP.fullmatch(address.name)
    if match is not None and address.parent.name in ("states", "checkpoints"):
        address, step = address.parent.parent, int(match[1])
    else:
        step = None
    if not address.parent.path:
        raise UserError(f"{key}={address}: expected the run's name after the bucket, {address}/NAME")
    return address, step


def cached(text: str, key: str, *, best: bool = False, warn: Callable[[str], None]) -> Path:
    """Returns the folder of the fetched checkpoint.

    Args:
        text: the address of a run, or of one of its states.
        best: the state with the best score instead of the newest.

    Raises:
        UserError: there is no run or no complete state, or it cannot be read.
        Unreachable: remote storage does not answer.
    """
    address, step = run_and_step(text, key)
    store = RunStore(open_files(address, key), address)
    folder = RunDir(_place(address) / address.name)
    try:
        if store.run_id() is None:
            raise UserError(
                f"{key}={address}: no run is kept there; give the address of a run, <run.remote>/<run.name>"
            )
        if best and step is None:
            step = _best(store, key, address)
        if not folder.path.is_dir():
            make_folders(folder.path)
        for problem in fetch_files(store, folder):
            warn(problem)
        found = _fetch(store, folder, step, warn)
    except RemoteError as error:
        if error.kind == "failed":
            raise Unreachable(f"{key}={address} does not answer ({error}); try again later") from error
        raise refused(key, address, error) from error
    except OSError as error:
        raise UserError(
            f"{key}={address}: the cache {folder.path} cannot be written: {error.strerror}; choose another with "
            "METTA_FAST_CACHE=/a/folder"
        ) from error
    if found is None:
        raise UserError(f"{key}={address}: no complete state is kept there; give a run that has one")
    _trim(folder.checkpoints, found)
    return found


def _fetch(store: RunStore, folder: RunDir, step: int | None, warn: Callable[[str], None]) -> Path | None:
    there = dict(checkpoint.steps(folder.checkpoints))
    if step is None:
        return newest(
            store, -1, warn, lambda state: there.get(state.step) or fetch_state(store, state, folder)
        )
    if step in there:
        return there[step]
    try:
        return fetch_state(store, store.state(step), folder)
    except (DamagedManifest, DamagedPart) as error:
        raise UserError(f"{store.address}: the state of step {step} cannot be used: {error}") from error


def _best(store: RunStore, key: str, address: Address) -> int:
    scores = []
    for step in store.steps():
        try:
            scores.append((store.state(step).score, step))
        except DamagedManifest:
            continue
    found = highest_score(scores)
    if found is None:
        raise UserError(f"{key}={address} holds no state with a score yet; leave out --best")
    return found


def _trim(folder: Path, used: Path) -> None:
    """Deletes all fetched states but the newest ones."""
    for _, path in checkpoint.steps(folder)[:-KEEP]:
        if path != used:
            shutil.rmtree(path, ignore_errors=True)


def _place(address: Address) -> Path:
    """Returns the cache's folder for runs beside this one."""
    own, shared = os.environ.get("METTA_FAST_CACHE"), os.environ.get("XDG_CACHE_HOME")
    base = Path(own) if own else Path(shared or Path.home() / ".cache") / "metta_fast"
    return base / "remote" / hashlib.sha256(str(address.parent).encode()).hexdigest()[:16]
