"""Writes and reads checkpoints: one folder per step, either complete or absent.

    checkpoints/step_000000123456/
        manifest.json     {"schema": 2, "step": …, "files": {name: {"sha256", "bytes"}}}
        meta.json         step, epoch, config, score, versions
        algorithm.pt      policy, optimizer, normalisers, counters, RNG
        env.pt            state of the environments, if it is saved
        replay-000012.pt  states that never change (contracts/algorithm.py: KeptState): one file on disk, which is
                          linked into each checkpoint that has it

A checkpoint is written to a temporary folder (`.writing-…`), flushed to disk and renamed into place. An old one is
renamed (`.removing-…`) before it is deleted, and one of the same step (`replaced-step_…`) before the new one takes its
place. So every folder named step_… is complete at any time. Each file is written sequentially once, because bucket
mounts cannot seek. Loading verifies sha256 first, reads only files that the manifest lists, and runs no code
(`weights_only`).

Place in the flow: run/trainer.py saves; run/resume.py and inference/loaded_policy.py read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from metta_fast.contracts.algorithm import KeptState
from metta_fast.contracts.errors import UserError
from metta_fast.machine.run_imports import run_of, stay_out
from metta_fast.storage.altered import altered, check_meta, reading
from metta_fast.storage.durable import HashedFile, open_regular, sync_folder
from metta_fast.storage.encoding import decode, encode

OWN = ("algorithm", "env")
"""States that every run has; others are an algorithm's kept ones."""
SCHEMA = 2
"""1: without numpy's scalars, complex numbers and dicts that look like tags (encoding.py)."""
STEP_NAME = re.compile(r"step_(\d+)")
_Of = TypeVar("_Of")
_REPLACED = re.compile(r"replaced-(step_(\d+))-(\d+)")


class DamagedCheckpoint(Exception):
    """A checkpoint folder with a file that is missing, truncated or altered, or that cannot be loaded."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with verified files."""

    path: Path
    meta: dict[str, Any]
    files: frozenset[str]
    """Names of the verified files."""
    _ready: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """States that were loaded already."""

    @property
    def run(self) -> Path:
        """The run's folder, or the checkpoint itself if it is in none."""
        return Path(run_of(self.path))

    @property
    def step(self) -> int:
        return int(self.meta["step"])

    def value(self, key: str) -> Any:
        """Returns an entry of meta.json.

        Raises:
            AlteredCheckpoint: there is none.
        """
        if key not in self.meta:
            raise altered(self.path, "meta.json", f"{key} is missing")
        return self.meta[key]

    def load(self, name: str) -> Any:
        """Loads the state saved under `name`, with tensors on the CPU; None if it was not saved.

        Raises:
            UserError: the file cannot be loaded, although its checksum matches.
        """
        if name in self._ready:
            return self._ready.pop(name)
        try:
            return self._load(name)
        except DamagedCheckpoint as error:
            raise UserError(
                f"{error}: it was altered together with its checksum, or an old version saved what cannot be loaded. "
                f"Do not use it; continue from an earlier checkpoint with resume={self.path.parent}/step_…"
            ) from error

    def kept(self) -> dict[str, KeptState]:
        """Returns the kept states by their names, each with its file."""
        names = sorted(file[: -len(".pt")] for file in self.files if file.endswith(".pt"))
        entries = json.loads(_bytes(_here(self.path) / "manifest.json"))["files"]
        return {
            name: KeptState(partial(self.load, name), _here(self.path) / f"{name}.pt", entries[f"{name}.pt"])
            for name in names
            if name not in OWN
        }

    def make_ready(self, names: Sequence[str]) -> None:
        """Loads these states and keeps each until the first `load`.

        Raises:
            DamagedCheckpoint: one cannot be loaded.
        """
        for name in names:
            self._ready[name] = self._load(name)

    def _load(self, name: str) -> Any:
        import torch

        if f"{name}.pt" not in self.files:
            return None
        file = _here(self.path) / f"{name}.pt"
        try:
            return decode(torch.load(file, weights_only=True, map_location="cpu"))
        except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, AttributeError, LookupError, EOFError,
                OSError) as error:  # fmt: skip
            named = re.search(r"GLOBAL (\S+)", str(error))  # the class or function of weights_only's refusal
            why = f"it refers to {named[1]}" if named else type(error).__name__
            raise DamagedCheckpoint(
                f"{file} is not a state written by metta_fast, although its checksum matches ({why})"
            ) from error


def save(folder: Path, step: int, states: Mapping[str, Any], meta: dict[str, Any]) -> Path:
    """Writes the checkpoint of `step` into `folder` and returns its path. Copies no state.

    Args:
        states: {name: nested dicts and lists of tensors, numpy arrays and plain values, or a function that returns
            them, or a KeptState}; None is skipped. Kept states learn where their file is.
        meta: JSON values that describe the checkpoint (config, score, …).

    Raises:
        UnsavableState: a state holds a value that could not be loaded again; nothing was written.
        UserError: the disk is full or not writable; earlier checkpoints are unchanged.
    """
    target = folder / f"step_{step:012d}"
    beside = folder / f".writing-{target.name}-{os.getpid()}"
    try:
        if beside.exists():  # of a failed write of this process
            shutil.rmtree(beside)
        beside.mkdir(parents=True)
        _write_files(beside, step, states, meta)
        if target.exists():
            target.rename(folder / f"replaced-{target.name}-{time.time_ns()}")
        beside.rename(target)
        sync_folder(folder)
        for name, state in states.items():
            if isinstance(state, KeptState):
                state.path = target / f"{name}.pt"
    except Exception as error:
        shutil.rmtree(beside, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        kept = steps(folder)
        run = folder.parent
        last = f"the last good one is {kept[-1][1]}" if kept else "there is no earlier one"
        again = f"continue with resume={run}" if kept else f"start again with resume=auto run.name={run.name}"
        raise UserError(
            f"cannot write the checkpoint {target}: {error.strerror}; {last}. Make the folder writable, free disk "
            f"space, or copy the run elsewhere; then {again}"
        ) from error
    return target


def _write_files(beside: Path, step: int, states: Mapping[str, Any], meta: dict[str, Any]) -> None:
    """Writes and flushes a checkpoint's files, one state at a time."""
    import torch

    files: dict[str, dict[str, Any]] = {}
    with HashedFile(beside / "meta.json") as file:
        file.write(json.dumps({"step": step, **meta}, indent=1).encode())
    files["meta.json"] = file.entry()
    for name, given in states.items():
        if isinstance(given, KeptState) and given.entry is not None and _linked(given, beside / f"{name}.pt"):
            files[f"{name}.pt"] = given.entry
            continue
        state = given.make() if isinstance(given, KeptState) else given() if callable(given) else given
        if state is None:
            continue
        encoded = encode(state, name)
        with HashedFile(beside / f"{name}.pt") as file:
            torch.save(encoded, cast("IO[bytes]", file))
        files[f"{name}.pt"] = file.entry()
        if isinstance(given, KeptState):
            given.entry = file.entry()
        del state, encoded  # before the next one is made
    with HashedFile(beside / "manifest.json") as file:
        file.write(json.dumps({"schema": SCHEMA, "step": step, "files": files}, indent=1).encode())
    sync_folder(beside)


def _linked(state: KeptState, to: Path) -> bool:
    """Gives a saved file a second name. Returns False where it is gone, or on another file system."""
    if state.path is None:
        return False
    try:
        os.link(state.path, to, follow_symlinks=False)
    except OSError:
        return False
    return True


def steps(folder: Path) -> list[tuple[int, Path]]:
    """Lists (step, path) of every checkpoint folder in ascending order of steps.

    If a write was interrupted after it had moved a checkpoint of the same step away, that one is listed. Reading must
    rename nothing, because another process may be writing: `clear_unfinished` restores its name.
    """
    try:
        entries = [entry for entry in folder.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"cannot read the checkpoints {folder}: {error.strerror}") from error
    found = [(int(match[1]), entry) for entry in entries if (match := STEP_NAME.fullmatch(entry.name))]
    return sorted([*found, *_displaced(entries, {step for step, _ in found}).items()])


def _displaced(entries: list[Path], present: set[int]) -> dict[int, Path]:
    """Returns the newest replaced-step_… folder of each step that is not present otherwise."""
    matches = [(match, entry) for entry in entries if (match := _REPLACED.fullmatch(entry.name))]
    matches.sort(key=lambda pair: int(pair[0][3]))
    return {int(match[2]): entry for match, entry in matches if int(match[2]) not in present}


def _here(path: Path) -> Path:
    """Returns where a checkpoint is now: `clear_unfinished` may have restored the name of a displaced one."""
    match = _REPLACED.fullmatch(path.name)
    return path.with_name(match[1]) if match and not path.exists() else path


def read(path: Path) -> Checkpoint:
    """Verifies and opens one checkpoint folder. From now on nothing is imported from its run's folder.

    Raises:
        DamagedCheckpoint: a file is damaged; the message names it.
        AlteredCheckpoint: meta.json has the right checksum, and a value of the wrong type.
        UserError: a newer version of metta_fast wrote it.
    """
    stay_out(run_of(path))
    try:
        if path.is_symlink():
            raise DamagedCheckpoint(f"{path} is a link, which is not followed")
        manifest = json.loads(_bytes(path / "manifest.json"))
        if manifest["schema"] > SCHEMA:
            raise UserError(
                f"checkpoint {path} has schema {manifest['schema']}, but this version of metta_fast reads up "
                f"to {SCHEMA}: update metta_fast"
            )
        sums = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        sums["meta.json"]  # raises KeyError if it is not listed
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(
            f"{path}: manifest.json cannot be read ({type(error).__name__}: {error})"
        ) from error
    for name, expected in sums.items():
        try:
            with open_regular(path / name) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            raise DamagedCheckpoint(
                f"{path}: {name} cannot be read ({getattr(error, 'strerror', error)})"
            ) from error
        if digest != expected:
            raise DamagedCheckpoint(f"{path}: the checksum of {name} does not match (cut short or altered)")
    with reading(path, "meta.json"):
        meta = json.loads(_bytes(path / "meta.json"))
        check_meta(meta)
    number = STEP_NAME.fullmatch(path.name)
    if number and int(number[1]) != meta["step"]:
        raise DamagedCheckpoint(
            f"{path}: the folder's name is wrong, its checkpoint is of step {meta['step']}"
        )
    return Checkpoint(path, meta, frozenset(sums))


def _bytes(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def latest(
    folder: Path,
    warn: Callable[[str], None],
    loads: Sequence[str] = (),
    mine: Callable[[Path], bool] = lambda path: True,
) -> Checkpoint | None:
    """Returns the newest undamaged checkpoint by step; each damaged one is skipped with a warning.

    Raises:
        AlteredCheckpoint: one that is newer than every undamaged one was altered together with its checksums.

    Args:
        warn: called with a text for each that is skipped.
        loads: names of states that must load; they are kept for the caller's `load`.
        mine: tells whether a path is of the caller's run; others are skipped.
    """
    for _, path in reversed(steps(folder)):
        if not mine(path):
            warn(f"checkpoint of another run skipped: {path}")
            continue
        try:
            found = read(path)
            found.make_ready(loads)
            return found
        except DamagedCheckpoint as error:
            warn(f"damaged checkpoint skipped: {error}")
    return None


def prune(folder: Path, keep: int, held: frozenset[Path] = frozenset()) -> list[str]:
    """Deletes all checkpoints but the newest `keep` and the best by score, and those that were replaced.

    Args:
        held: checkpoints that stay for now, because they are being read.

    Returns:
        A text for each folder that could not be deleted; links and files are ignored.
    """
    found = steps(folder)
    kept = {path for _, path in found[-max(keep, 1) :]}
    highest = best([path for _, path in found])
    old = [path for _, path in found if path not in kept and path != highest and path not in held]
    listed = {path for _, path in found}
    old += [entry for entry in sorted(folder.glob("replaced-step_*")) if entry not in listed]
    return _delete(old)


def clear_unfinished(folder: Path) -> list[str]:
    """Completes what a killed process has left: deletes partly written or partly deleted folders, and restores the
    name of a checkpoint that was to be replaced. Call only while holding the run's lock.

    Returns:
        A text for each folder that could not be deleted.
    """
    for step, path in steps(folder):
        if _REPLACED.fullmatch(path.name):
            path.rename(folder / f"step_{step:012d}")
    return _delete(
        [entry for pattern in (".writing-*", ".removing-*") for entry in sorted(folder.glob(pattern))]
    )


def _delete(paths: list[Path]) -> list[str]:
    """Deletes folders; each is renamed first, so that none is a checkpoint any more when the first file goes."""
    problems = []
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            continue
        try:
            hidden = path
            if not path.name.startswith("."):
                hidden = path.rename(path.with_name(f".removing-{path.name}-{time.time_ns()}"))
            shutil.rmtree(hidden)
        except OSError as error:
            problems.append(f"{path} cannot be removed: {error.strerror}")
    return problems


def set_aside(folder: Path, after: int) -> list[Path]:
    """Renames checkpoints of later steps than `after` to `aside-…`, so that a resumed run continues from `after`."""
    moved = []
    for step, path in steps(folder):
        if step > after:
            moved.append(path.rename(folder / f"aside-{path.name}-{time.time_ns()}"))
    return moved


def best(paths: list[Path]) -> Path | None:
    """Returns the folder with the highest score; if any has a score from an evaluation, only those are compared."""
    scores: list[tuple[Any, Path]] = []
    for path in paths:
        try:
            scores.append((json.loads(_bytes(path / "meta.json")).get("score"), path))
        except (OSError, ValueError, TypeError, AttributeError):
            continue  # damaged: latest() warns about it
    return highest_score(scores)


def highest_score(scores: Sequence[tuple[Any, _Of]]) -> _Of | None:
    """Returns what has the highest score; if any score is an evaluation's, only those are compared.

    Args:
        scores: (the score as in meta.json, whose it is).
    """
    scored: dict[str, list[tuple[float, _Of]]] = {}
    for score, of in scores:
        try:
            if score and math.isfinite(score["value"]):
                scored.setdefault(score["name"], []).append((float(score["value"]), of))
        except (TypeError, AttributeError, LookupError):
            continue  # damaged
    for name in sorted(scored, key=lambda name: not name.startswith("eval/")):
        return max(scored[name])[1]  # type: ignore[type-var]
    return None
