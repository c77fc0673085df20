"""Decides where a run starts: from scratch, or from a checkpoint with its configuration.

    resume=auto      the run named run.name, else the newest run with a checkpoint; if there is none, a new run
                     starts, so that the same command starts a job and recovers it (spot machines)
    resume=runs/x    that run's newest whole checkpoint
    resume=runs/x/checkpoints/step_000000123456     exactly that one

A resumed run keeps its configuration. Typed keys override it, except those on which the saved state depends
(`FIXED`, and `AlgorithmKind.fixed`). Values that were `auto` are resolved again for this machine, unless the run is
deterministic.

Place in the flow: cli.py: compose ─► prepare ─► resolve ─► Trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metta_fast.algorithms.registry import kind_of, own_keys
from metta_fast.config.keys import Config, config_from_dict, config_to_dict, keys, path_parts, put
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.compose import COMMAND_LINE, Composed
from metta_fast.run.fine_tune import adopt
from metta_fast.storage import checkpoint
from metta_fast.storage.checkpoint import Checkpoint, DamagedCheckpoint
from metta_fast.storage.run_folder import RunDir, find_folders, runs, safe_name

FIXED = (
    "env.",
    "policy.",
    "algorithm.name",
    "seed",
)
"""Keys (and beginnings of keys) that cannot change within a run, beside those that the algorithm says are fixed."""
FREE = ("env.device",)
"""Exceptions from FIXED."""
STATES = ("algorithm", "env")
"""What a checkpoint must give to continue from it."""


@dataclass(frozen=True)
class Start:
    """Where a run starts: `composed` goes to resolve, the rest to Trainer."""

    composed: Composed
    folder: RunDir | None = None
    checkpoint: Checkpoint | None = None
    init: Checkpoint | None = None
    """Whose policy a new run begins with (init_from)."""


def prepare(composed: Composed, words: Sequence[str] = ()) -> Start:
    """Finds the run that `resume` or `init_from` names and merges its configuration with the typed keys.

    Args:
        words: the arguments as typed, to tell a typed `env=…` from the default one.

    Raises:
        UserError: nothing there, a damaged checkpoint named exactly, or a typed value that cannot change.
    """
    resume, run = composed.config.resume, composed.config.run
    if resume is None:
        return _from_scratch(composed, None, [], words)
    notes: list[str] = []
    if resume == "auto":
        folder, found = _newest(run.dir, run.name, notes)
    else:
        if composed.typed("init_from") and composed.config.init_from is not None:
            raise UserError(
                f"resume={resume} continues a run, but init_from={composed.config.init_from} starts a new one "
                "with another's policy; remove one of them"
            )
        folder, found = _named(run.dir, "resume", str(resume), notes)
        if run.name is not None and str(run.name) != folder.name:
            raise UserError(
                f"resume={resume} continues the run {folder.name}, but run.name={run.name} names another; "
                f"remove run.name"
            )
    if found is None or folder is None:
        return _from_scratch(composed, folder, notes, words)
    return Start(_merge(composed, found, folder, notes, words), folder, found)


def _from_scratch(composed: Composed, folder: RunDir | None, notes: list[str], words: Sequence[str]) -> Start:
    """Returns a start from step 0, with another run's policy if init_from names one."""
    found = None
    if composed.config.init_from is not None:
        _, found = _named(composed.config.run.dir, "init_from", str(composed.config.init_from), notes)
        composed = adopt(composed, found, words)
    return Start(dataclasses.replace(composed, notes=[*composed.notes, *notes]), folder, init=found)


def _newest(root: str, name: Any, notes: list[str]) -> tuple[RunDir | None, Checkpoint | None]:
    if name is not None:
        folder = RunDir(Path(root) / safe_name(str(name)))
        if not folder.path.is_dir():
            notes.append(f"resume=auto: no run {folder.path} yet, starting it")
            return None, None
        found = checkpoint.latest(folder.checkpoints, notes.append, STATES)
        if found is None:
            notes.append(f"resume=auto: {folder.path} has no complete checkpoint, starting from step 0")
        return folder, found
    for folder in runs(root):
        found = checkpoint.latest(folder.checkpoints, notes.append, STATES)
        if found is not None:
            return folder, found
    notes.append(f"resume=auto: no run with a checkpoint in {root}, starting a new one")
    return None, None


def _named(root: str, key: str, value: str, notes: list[str]) -> tuple[RunDir, Checkpoint]:
    """Returns the run and checkpoint that `key=value` names. key: resume or init_from."""
    path = next(find_folders(value, root), None)
    if path is None:
        there = ", ".join(folder.name for folder in runs(root)[:5]) or "none"
        raise UserError(
            f"{key}={value}: no such folder; expected a run or one of its checkpoints. "
            f"Newest runs in {root}: {there}"
        )
    path = path.resolve()
    if checkpoint.STEP_NAME.fullmatch(path.name):
        try:
            return RunDir(path.parent.parent), checkpoint.read(path)
        except DamagedCheckpoint as error:
            raise UserError(
                f"{key}={value}: damaged checkpoint: {error}; {key}={path.parent.parent} takes the "
                f"newest complete one"
            ) from error
    folder = RunDir(path)
    needed = STATES if key == "resume" else STATES[:1]
    found = checkpoint.latest(folder.checkpoints, notes.append, needed)
    if found is None:
        raise UserError(
            f"{key}={value}: {folder.checkpoints} has no complete checkpoint; give a run that has one"
            + (", or resume=auto to start a new run if there is none" if key == "resume" else "")
        )
    return folder, found


def _merge(
    composed: Composed, found: Checkpoint, folder: RunDir, notes: list[str], words: Sequence[str]
) -> Composed:
    """Returns the run's configuration, overridden by the typed values."""
    saved = config_from_dict(found.meta["config"])
    before, now = leaves(saved), leaves(composed.config)
    _check_groups(before, now, words)
    kind = kind_of(saved)
    fixed = (*FIXED, *kind.fixed)
    for path in (path for path in composed.origins if composed.typed(path)):
        if path.startswith(fixed) and path not in FREE and before.get(path) != now.get(path):
            raise UserError(
                f"{path}={now.get(path)}: the run {folder.name} has {before.get(path)} and its saved state "
                f"depends on it; remove it, or start a new run without resume="
            )
    schema = keys() | own_keys(kind)
    origins = dict.fromkeys(keys(), f"run {folder.name}")
    if not saved.trainer.deterministic:
        for path, origin in found.meta["origins"].items():
            entry = schema.get(path)
            if (
                entry is not None
                and origin.startswith("auto")
                and (entry.auto or "auto" in (entry.choices or ()))
            ):
                put(saved, path, "auto")
    settable = (path for path in composed.origins if path in origins or path.startswith("algorithm."))
    for path in filter(composed.typed, settable):
        if path == "init_from":
            notes.append(f"init_from={now[path]} is ignored: the run continues from its own checkpoint")
            continue
        put(saved, path, now[path])
        origins[path] = COMMAND_LINE
    _put_features(saved, composed, now, origins)
    saved.run.dir, saved.run.name, saved.resume = str(folder.path.parent), folder.name, None
    notes.append(f"resumed from {found.path} with its configuration; typed values override it")
    return Composed(saved, origins, composed.groups, [*composed.notes, *notes], composed.machine)


def _put_features(saved: Config, composed: Composed, now: dict[str, Any], origins: dict[str, str]) -> None:
    """Adds the features and feature keys that were typed: `features=profiler` or `features.my:add.weight=0.2`."""
    for path, origin in composed.origins.items():
        if not path.startswith("features.") or not (origin == COMMAND_LINE or origin.startswith("features/")):
            continue
        _, name, *inside = path_parts(path)
        old = saved.features.get(name)
        if inside and not isinstance(old, dict):
            saved.features[name] = {}
        if inside or now[path] != {} or not isinstance(old, dict):  # {}: the feature named, without a key
            put(saved, path, now[path])
            origins[path] = origin
            origins.pop("features", None)


def _check_groups(before: dict[str, Any], now: dict[str, Any], words: Sequence[str]) -> None:
    """Raises UserError if a typed `env=…`, `policy=…` or `algorithm=…` is not the run's own."""
    groups = {word.partition("=")[0] for word in words}
    for path in ("env.name", "env.factory", "policy.name", "policy.core", "algorithm.name"):
        group = path.partition(".")[0]
        if group in groups and before[path] != now[path]:
            raise UserError(
                f"{group}=… gives {path}={now[path]}, but the run to resume has {before[path]}; remove it, "
                f"or start a new run without resume="
            )


def leaves(config: Config) -> dict[str, Any]:
    """Returns every value by its dotted path; of a dict both the whole and each entry."""
    found: dict[str, Any] = {}

    def walk(node: dict[str, Any], prefix: str) -> None:
        for name, value in node.items():
            path = prefix + name
            found[path] = value
            if isinstance(value, dict):
                walk(value, path + ".")

    walk(config_to_dict(config), "")
    return found
