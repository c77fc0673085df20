"""Writes and reads checkpoints: one folder per step, either complete or absent.

    checkpoints/step_000000123456/
        manifest.json     {"schema": 1, "step": …, "files": {name: {"sha256", "bytes"}}}
        meta.json         step, epoch, config, score, versions
        algorithm.pt      policy, optimizer, normalisers, counters, RNG
        env.pt            state of the environments, if it is saved

A checkpoint is written to a temporary folder (`.writing-…`), flushed to disk and renamed into place. An old one is
renamed (`.removing-…`) before it is deleted. So every folder named step_… is complete at any time. Each file is
written sequentially once, because bucket mounts cannot seek. Loading verifies sha256 first, reads only files that the
manifest lists, and runs no code (`weights_only`).

Place in the flow: run/trainer.py saves; run/resume.py and inference/loaded_policy.py read.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metta_fast.contracts.errors import UserError

SCHEMA = 1
STEP_NAME = re.compile(r"step_(\d+)")
_NDARRAY, _BYTES = "__ndarray__", "__bytes__"


class DamagedCheckpoint(Exception):
    """A checkpoint folder with a file that is missing, truncated or altered."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with verified files."""

    path: Path
    meta: dict[str, Any]
    files: frozenset[str]
    """Names of the verified files."""

    @property
    def step(self) -> int:
        return int(self.meta["step"])

    def load(self, name: str) -> Any:
        """Loads the state saved under `name`, with tensors on the CPU; None if it was not saved.

        Raises:
            UserError: metta_fast did not write the file, although its checksum matches.
        """
        import torch

        if f"{name}.pt" not in self.files:
            return None
        file = self.path / f"{name}.pt"
        try:
            return decode(torch.load(io.BytesIO(file.read_bytes()), weights_only=True, map_location="cpu"))
        except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, LookupError, EOFError) as error:
            raise UserError(
                f"{file} is not a state written by metta_fast: it was altered together with its checksum. Do not use "
                f"it; continue from an earlier checkpoint with resume={self.path.parent}/step_…"
            ) from error


def save(folder: Path, step: int, states: dict[str, Any], meta: dict[str, Any]) -> Path:
    """Writes the checkpoint of `step` into `folder` and returns its path.

    Args:
        states: {name: nested dicts and lists of tensors, numpy arrays and plain values}; None is skipped.
        meta: JSON values that describe the checkpoint (config, score, …).

    Raises:
        UserError: the disk is full or not writable; earlier checkpoints are unchanged.
    """
    import torch

    files: dict[str, bytes] = {"meta.json": json.dumps({"step": step, **meta}, indent=1).encode()}
    for name, state in states.items():
        if state is not None:
            stream = io.BytesIO()
            torch.save(encode(state), stream)
            files[f"{name}.pt"] = stream.getbuffer().tobytes()
    manifest = {
        "schema": SCHEMA,
        "step": step,
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in files.items()
        },
    }
    target = folder / f"step_{step:012d}"
    beside = folder / f".writing-{target.name}-{os.getpid()}"
    try:
        beside.mkdir(parents=True)
        for name, data in files.items():
            _write(beside / name, data)
        _write(beside / "manifest.json", json.dumps(manifest, indent=1).encode())
        _sync_folder(beside)
        if target.exists():
            target.rename(folder / f"replaced-{target.name}-{time.time_ns()}")
        beside.rename(target)
        _sync_folder(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        kept = steps(folder)
        run = folder.parent
        last = f"the last good one is {kept[-1][1]}" if kept else "there is no earlier one"
        again = f"continue with resume={run}" if kept else f"start again with resume=auto run.name={run.name}"
        raise UserError(
            f"cannot write the checkpoint {target}: {error.strerror}; {last}. Make the folder writable, free disk "
            f"space, or copy the run elsewhere; then {again}"
        ) from error
    return target


def steps(folder: Path) -> list[tuple[int, Path]]:
    """Lists (step, path) of every checkpoint folder in ascending order of steps."""
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    matches = ((STEP_NAME.fullmatch(entry.name), entry) for entry in entries)
    return sorted((int(match[1]), entry) for match, entry in matches if match)


def read(path: Path) -> Checkpoint:
    """Verifies and opens one checkpoint folder.

    Raises:
        DamagedCheckpoint: a file is damaged; the message names it.
        UserError: a newer version of metta_fast wrote it.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        if manifest["schema"] > SCHEMA:
            raise UserError(
                f"checkpoint {path} has schema {manifest['schema']}, but this version of metta_fast reads up "
                f"to {SCHEMA}: update metta_fast"
            )
        sums = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        sums["meta.json"]  # raises KeyError if it is not listed
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(
            f"{path}: manifest.json cannot be read ({type(error).__name__}: {error})"
        ) from error
    for name, expected in sums.items():
        try:
            digest = hashlib.sha256((path / name).read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            raise DamagedCheckpoint(
                f"{path}: {name} cannot be read ({getattr(error, 'strerror', error)})"
            ) from error
        if digest != expected:
            raise DamagedCheckpoint(f"{path}: the checksum of {name} does not match (cut short or altered)")
    meta = json.loads((path / "meta.json").read_bytes())
    number = STEP_NAME.fullmatch(path.name)
    if number and int(number[1]) != meta["step"]:
        raise DamagedCheckpoint(
            f"{path}: the folder's name is wrong, its checkpoint is of step {meta['step']}"
        )
    return Checkpoint(path, meta, frozenset(sums))


def latest(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Returns the newest undamaged checkpoint by step; each damaged one is skipped with a warning."""
    for _, path in reversed(steps(folder)):
        try:
            return read(path)
        except DamagedCheckpoint as error:
            warn(f"damaged checkpoint skipped: {error}; trying the one before")
    return None


def prune(folder: Path, keep: int) -> None:
    """Deletes all checkpoints but the newest `keep` and the best by score, and leftovers of interrupted writes.

    Raises:
        OSError: a folder cannot be deleted; the remaining checkpoints stay complete.
    """
    found = steps(folder)
    newest = {path for _, path in found[-max(keep, 1) :]}
    highest = best([path for _, path in found])
    for _, path in found:
        if path not in newest and path != highest:
            shutil.rmtree(path.rename(folder / f".removing-{path.name}-{time.time_ns()}"))
    for entry in folder.glob("replaced-step_*"):
        shutil.rmtree(entry)


def clear_unfinished(folder: Path) -> None:
    """Removes partly written or partly deleted folders of a killed process. Call only while holding the run's lock."""
    for pattern in (".writing-*", ".removing-*"):
        for entry in folder.glob(pattern):
            shutil.rmtree(entry)


def set_aside(folder: Path, after: int) -> list[Path]:
    """Renames checkpoints of later steps than `after` to `aside-…`, so that a resumed run continues from `after`."""
    moved = []
    for step, path in steps(folder):
        if step > after:
            moved.append(path.rename(folder / f"aside-{path.name}-{time.time_ns()}"))
    return moved


def encode(value: Any) -> Any:
    """Converts a state to types that `weights_only` can load: numpy arrays and bytes become tagged tensors.

    Raises:
        TypeError: a value is not a tensor, array, container or plain value.
    """
    import torch

    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (torch.Tensor, bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {_BYTES: torch.from_numpy(np.frombuffer(value, np.uint8).copy())}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("arrays of Python objects cannot be stored in a checkpoint")
        flat = np.frombuffer(bytearray(np.ascontiguousarray(value).tobytes()), np.uint8)
        dtype = value.dtype.descr if value.dtype.names else value.dtype.str
        return {_NDARRAY: [dtype, list(value.shape), torch.from_numpy(flat) if flat.size else None]}
    if isinstance(value, dict):
        return {encode(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [encode(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored in a checkpoint")


def decode(value: Any) -> Any:
    """Restores a state converted by `encode`."""
    if isinstance(value, dict):
        if value.keys() == {_NDARRAY}:
            dtype, shape, flat = value[_NDARRAY]
            data = b"" if flat is None else flat.numpy().tobytes()
            kind = np.dtype([tuple(part) for part in dtype] if isinstance(dtype, list) else dtype)
            return np.frombuffer(bytearray(data), kind).reshape(shape)
        if value.keys() == {_BYTES}:
            return value[_BYTES].numpy().tobytes()
        return {k: decode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(decode(item) for item in value)
    return value


def best(paths: list[Path]) -> Path | None:
    """Returns the folder with the highest score; if any has a score from an evaluation, only those are compared."""
    scored: dict[str, list[tuple[float, Path]]] = {}
    for path in paths:
        try:
            score = json.loads((path / "meta.json").read_bytes()).get("score")
        except (OSError, ValueError):
            continue  # damaged: latest() warns about it
        if score:
            scored.setdefault(score["name"], []).append((score["value"], path))
    for name in sorted(scored, key=lambda name: not name.startswith("eval/")):
        return max(scored[name])[1]
    return None


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Flushes a folder's entries to disk; file systems without this operation (bucket mounts) are accepted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
