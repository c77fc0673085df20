"""Decides where a run starts: from scratch, or from a checkpoint with its configuration.

    resume=auto      the run named run.name, else the newest run with a checkpoint; if there is none, a new run
                     starts, so that the same command starts a job and recovers it (spot machines)
    resume=runs/x    that run's newest whole checkpoint
    resume=runs/x/checkpoints/step_000000123456     exactly that one
    resume=elsewhere/step_000000123456              a copy: a new run continues from it
    resume=s3://bucket/runs/x                       that run in remote storage (remote_run.py), fetched into run.dir

The run is locked before its checkpoint is chosen, so that the choice is made after another process has saved its
last one. A run none of whose checkpoints can be used is an error: it is never started again at step 0.

A resumed run keeps its configuration. Typed keys override it, except those on which the saved state depends
(`FIXED`, and `AlgorithmKind.fixed`). Values that were `auto` are resolved again for this machine, unless the run is
deterministic.

Place in the flow: cli.py: compose ─► prepare ─► resolve ─► Trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metta_fast.algorithms.registry import kind_of, own_keys
from metta_fast.config.keys import Config, config_to_dict, keys, path_parts, put
from metta_fast.contracts.errors import UserError
from metta_fast.inference.saved_state import saved_config
from metta_fast.resolve.compose import COMMAND_LINE, Composed
from metta_fast.run.take_over.fine_tune import adopt
from metta_fast.run.take_over.remote_run import Remote, RemoteRun, make_place
from metta_fast.run.take_over.resumed_groups import drop_features, put_profile
from metta_fast.storage import checkpoint
from metta_fast.storage.checkpoint import Checkpoint, DamagedCheckpoint
from metta_fast.storage.remote.cache import cached, is_remote, run_and_step
from metta_fast.storage.run_folder import RunDir, find_folders, runs, safe_name
from metta_fast.storage.run_identity import home, is_run

FIXED = (
    "env.",
    "policy.",
    "algorithm.name",
    "seed",
)
"""Keys (and beginnings of keys) that cannot change within a run, beside those that the algorithm says are fixed."""
FREE = ("env.device",)
"""Exceptions from FIXED."""
NUMBER, SIZES = "env.num_envs", ("trainer.batch_size", "trainer.bptt_horizon")
"""A typed number of environments may change, and with it the sizes that depend on it: new episodes begin."""
MEASURED = ("env.step_cost", "env.step_waits", "env.action_mask")
"""Keys whose `auto` was found out when the run began; a resume takes the value over."""
STATES = ("algorithm", "env")
"""What a checkpoint must give to continue from it."""


@dataclass(frozen=True)
class Start:
    """Where a run starts: `composed` goes to resolve, the rest to Trainer. `release` it if no Trainer runs."""

    composed: Composed
    folder: RunDir | None = None
    """The run to continue, locked unless `prepare` was told not to; None: a new one."""
    checkpoint: Checkpoint | None = None
    """The state to continue from; without a folder, a new run continues from it."""
    init: Checkpoint | None = None
    """Whose policy a new run begins with (init_from)."""
    remote: RemoteRun | None = None
    """The run's place in remote storage, if it continues and has one."""

    def release(self) -> None:
        """Releases the run's lock; may be called twice."""
        if self.remote is not None:
            self.remote.close()
        if self.folder is not None:
            self.folder.unlock()


def prepare(composed: Composed, words: Sequence[str] = (), *, lock: bool = True) -> Start:
    """Finds the run that `resume` or `init_from` names and merges its configuration with the typed keys.

    Args:
        words: the arguments as typed, to tell a typed `env=…` from the default one.
        lock: lock the run before its checkpoint is chosen. False, if nothing will be trained: nothing is written.

    Raises:
        RunLocked: another process trains the run.
        UserError: nothing there, code that may not be imported, no checkpoint that can be used, or a typed value that
            cannot change.
        Unreachable: remote storage does not answer, and there is no local state.
    """
    resume = composed.config.resume
    notes = list[str]()
    if resume is None:
        Remote(composed, notes)
        return _from_scratch(composed, None, notes, words)
    with ExitStack() as on_failure:
        find = _Finder(composed, lock, notes, on_failure)
        if resume == "auto":
            start = find.newest(words)
        elif is_remote(str(resume)):
            start = find.remote(str(resume), words)
        else:
            start = find.named(str(resume), words)
        on_failure.pop_all()
    return dataclasses.replace(start, remote=find.joined)


def _from_scratch(composed: Composed, folder: RunDir | None, notes: list[str], words: Sequence[str]) -> Start:
    """Returns a start from step 0, with another run's policy if init_from names one."""
    found = None
    if composed.config.init_from is not None:
        found = _another(composed.config.run.dir, str(composed.config.init_from), notes)
        composed = adopt(composed, found, words)
    return Start(dataclasses.replace(composed, notes=[*composed.notes, *notes]), folder, init=found)


class _Finder:
    """Locks the run that `resume` names, then chooses its checkpoint: a process that still saves has the lock."""

    def __init__(self, composed: Composed, lock: bool, notes: list[str], on_failure: ExitStack) -> None:
        self._composed, self._lock, self._on_failure = composed, lock, on_failure
        self._root, self._name = composed.config.run.dir, composed.config.run.name
        self._notes = notes
        self._remote = Remote(composed, notes)

    @property
    def joined(self) -> RemoteRun | None:
        """The run's place in remote storage."""
        return self._remote.run

    def newest(self, words: Sequence[str]) -> Start:
        """Finds resume=auto: the run named run.name, else the newest that has checkpoints."""
        if self._name is not None:
            folder = RunDir(Path(self._root) / safe_name(str(self._name)))
            if not folder.path.is_dir():
                if not self._remote.holds(folder.name):
                    return self._new(f"resume=auto: no run {folder.path} yet, starting it", words)
                folder = self._fetched(folder)
            elif not is_run(folder):
                raise UserError(
                    f"resume=auto run.name={self._name}: {folder.path} holds other files, not a run; choose another "
                    "name, or another folder for runs with run.dir=…"
                )
            self._take(folder)
            if checkpoint.steps(folder.checkpoints):
                return self._go_on(folder, words)
            self._notes.append(f"resume=auto: {folder.path} has no checkpoint, starting from step 0")
            return _from_scratch(self._composed, folder, self._notes, words)
        for folder in runs(self._root):
            if checkpoint.steps(folder.checkpoints):
                self._take(folder)
                return self._go_on(folder, words)
        name = self._remote.newest_name()
        if name is not None:
            folder = self._fetched(RunDir(Path(self._root) / safe_name(name)))
            self._take(folder)
            return self._go_on(folder, words)
        return self._new(f"resume=auto: no run with a checkpoint in {self._root}, starting a new one", words)

    def remote(self, resume: str, words: Sequence[str]) -> Start:
        """Finds a run in remote storage, or one of its states, by its address."""
        self._check_no_init(resume)
        address, step = run_and_step(resume, "resume")
        self._check_name(str(address), safe_name(address.name))
        if not self._composed.typed("run.remote"):
            self._remote.place = address.parent
        if not self._remote.holds(address.name):
            raise UserError(
                f"resume={address}: no run is kept in {self._remote.place}/{address.name}; give the address of one, "
                "<run.remote>/<run.name>"
            )
        folder = self._fetched(RunDir(Path(self._root) / address.name))
        self._take(folder, step)
        if step is None:
            return self._go_on(folder, words)
        found = _read("resume", resume, folder.checkpoints / f"step_{step:012d}", folder)
        return Start(_merge(self._composed, found, folder, self._notes, words), folder, found)

    def _check_no_init(self, resume: str) -> None:
        config = self._composed.config
        if self._composed.typed("init_from") and config.init_from is not None:
            raise UserError(
                f"resume={resume} continues a run, but init_from={config.init_from} starts a new one with another's "
                "policy; remove one of them"
            )

    def _check_name(self, resume: str, name: str) -> None:
        if self._name is not None and str(self._name) != name:
            raise UserError(
                f"resume={resume} continues the run {name}, but run.name={self._name} names another; "
                f"remove run.name"
            )

    def named(self, resume: str, words: Sequence[str]) -> Start:
        """Finds a run or checkpoint by its path or name."""
        composed = self._composed
        self._check_no_init(resume)
        path = _folder_of("resume", resume, self._root)
        one = checkpoint.STEP_NAME.fullmatch(path.resolve().name) is not None
        folder = home(path) if one else RunDir(path.resolve())
        if folder is None:
            return self._elsewhere(path.resolve(), resume, words)
        self._check_name(resume, folder.name)
        root = composed.config.run.dir
        places = folder.path.resolve().parent, folder.path.parent.resolve()  # of a linked run, either
        if composed.typed("run.dir") and Path(root).resolve() not in places:
            raise UserError(
                f"resume={resume} continues the run {folder.path}, which is not in run.dir={root}; remove run.dir"
            )
        if one:
            self._take(folder)
            found = _read("resume", resume, path.resolve(), folder)
            return Start(_merge(composed, found, folder, self._notes, words), folder, found)
        if not checkpoint.steps(folder.checkpoints):
            raise UserError(
                f"resume={resume}: {folder.checkpoints} has no complete checkpoint; give a run that has one, or "
                "resume=auto to start a new run if there is none"
            )
        self._check_own(folder, resume)
        self._take(folder)
        return self._go_on(folder, words)

    def _new(self, note: str, words: Sequence[str]) -> Start:
        return _from_scratch(self._composed, None, [*self._notes, note], words)

    def _fetched(self, folder: RunDir) -> RunDir:
        """Returns the folder into which `_take` fetches a run; a copy in the cache if nothing will be trained."""
        if not self._lock and not folder.path.is_dir():
            return self._remote.local_copy(folder.name)
        if make_place(folder):
            self._on_failure.callback(_remove_unused, folder)
        return folder

    def _leave(self) -> None:
        if self.joined is not None:
            self.joined.close()

    def _take(self, folder: RunDir, step: int | None = None) -> None:
        """Locks the run, here and in remote storage, and fetches what is newer there, or the state of this step."""
        if self._lock:
            folder.lock()
            self._on_failure.callback(folder.unlock)
            self._on_failure.callback(self._leave)
            self._remote.join(folder, step)
            if self._remote.place is not None:
                self._composed.config.run.remote = str(self._remote.place)

    def _check_own(self, folder: RunDir, resume: str) -> None:
        """Raises UserError if the folder has only checkpoints of other runs: nothing may be written there."""
        paths = [path for _, path in checkpoint.steps(folder.checkpoints)]
        if not any(home(path) for path in paths):
            raise UserError(
                f"resume={resume}: {folder.path} is not the run of its checkpoints (they were copied, or the run's "
                f"file {folder.id.name} is missing), and continuing would overwrite its files; start a new run from "
                f"one of them with resume={paths[-1]}"
            )

    def _go_on(self, folder: RunDir, words: Sequence[str]) -> Start:
        """Continues a run from its newest checkpoint."""
        resume = self._composed.config.resume
        damaged: list[str] = []
        self._check_own(folder, str(resume))
        found = checkpoint.latest(
            folder.checkpoints, damaged.append, STATES, mine=lambda path: home(path) is not None
        )
        if found is None:
            raise UserError(
                f"resume={resume}: {folder.checkpoints} has no complete checkpoint: {'; '.join(damaged)}. Restore one "
                f"from a copy, or start a new run with run.name={folder.name}-2 and without resume="
            )
        self._notes += [f"{text}; trying the one before" for text in damaged]
        return Start(_merge(self._composed, found, folder, self._notes, words), folder, found)

    def _elsewhere(self, path: Path, resume: str, words: Sequence[str]) -> Start:
        """Continues, as a new run, from a checkpoint that is not in its run's folder."""
        found = _read("resume", resume, path, None)
        self._notes.append(
            f"{path} is not in the folder of its run, whose files stay as they are: a new run continues from it"
        )
        return Start(_merge(self._composed, found, None, self._notes, words), None, found)


def _remove_unused(folder: RunDir) -> None:
    """Removes a folder that was made for a run which could not be fetched."""
    if not checkpoint.steps(folder.checkpoints):
        folder.remove()


def _folder_of(key: str, value: str, root: str) -> Path:
    """Returns the folder that `key=value` names. key: resume or init_from."""
    path = next(find_folders(value, root), None)
    if path is None:
        there = ", ".join(folder.name for folder in runs(root)[:5]) or "none"
        raise UserError(
            f"{key}={value}: no such folder; expected a run or one of its checkpoints. "
            f"Newest runs in {root}: {there}"
        )
    return path


def _read(key: str, value: str, path: Path, folder: RunDir | None) -> Checkpoint:
    """Reads the checkpoint that `key=value` names exactly. folder: its run's, for the message."""
    try:
        return checkpoint.read(path)
    except DamagedCheckpoint as error:
        cure = (
            f"{key}={folder.path} takes the newest complete one"
            if folder
            else "copy it again from where it is whole"
        )
        raise UserError(f"{key}={value}: damaged checkpoint: {error}; {cure}") from error


def _another(root: str, value: str, notes: list[str]) -> Checkpoint:
    """Returns the checkpoint that init_from names: that one, or a run's newest."""
    if is_remote(value):
        return _read("init_from", value, cached(value, "init_from", warn=notes.append), None)
    path = _folder_of("init_from", value, root).resolve()
    if checkpoint.STEP_NAME.fullmatch(path.name):
        return _read("init_from", value, path, home(path))
    folder, damaged = RunDir(path), list[str]()
    found = checkpoint.latest(folder.checkpoints, damaged.append, STATES[:1])
    if found is None:
        why = f": {'; '.join(damaged)}" if damaged else ""
        raise UserError(
            f"init_from={value}: {folder.checkpoints} has no complete checkpoint{why}; give a run that has one"
        )
    notes += [f"{text}; trying the one before" for text in damaged]
    return found


def _merge(
    composed: Composed, found: Checkpoint, folder: RunDir | None, notes: list[str], words: Sequence[str]
) -> Composed:
    """Returns the checkpoint's configuration, overridden by the typed values. folder None: for a new run."""
    whose = f"run {folder.name}" if folder else f"checkpoint {found.path.name}"
    saved = saved_config(found)
    composed.check_code(saved, found.meta, found.run)
    before, now = leaves(saved), leaves(composed.config)
    _check_groups(before, now, words)
    kind = kind_of(saved)
    fixed = (*FIXED, *kind.fixed)

    def is_fixed(path: str) -> bool:
        return path.startswith(fixed) and path not in FREE

    resized = composed.typed(NUMBER) and before.get(NUMBER) != now.get(NUMBER)
    free = (NUMBER, *SIZES) if resized else ()
    for path in (path for path in composed.origins if composed.typed(path)):
        if path == "env.name" and not any(word.startswith("env.name=") for word in words):
            continue  # of `env=my_module:make`: the run has a name
        if is_fixed(path) and path not in free and before.get(path) != now.get(path):
            raise UserError(
                f"{path}={now.get(path)}: the {whose} has {before.get(path)} and its saved state "
                f"depends on it; remove it, or start a new run without resume="
            )
    schema = keys() | own_keys(kind)
    origins = dict.fromkeys(keys(), whose)
    if not saved.trainer.deterministic:
        for path, origin in found.value("origins").items():
            entry = schema.get(path)
            if (
                entry is not None
                and path not in MEASURED
                and origin.startswith("auto")
                and (entry.auto or "auto" in (entry.choices or ()))
            ):
                put(saved, path, "auto")
    settable = (path for path in composed.origins if path in origins or path.startswith("algorithm."))
    for path in filter(composed.typed, settable):
        if path == "env.name":  # fixed
            continue
        if path == "init_from":
            notes.append(f"init_from={now[path]} is ignored: the run continues from its own checkpoint")
            continue
        put(saved, path, now[path])
        origins[path] = COMMAND_LINE
    _put_features(saved, composed, now, origins)
    notes += drop_features(saved, composed, words)
    groups, said = put_profile(saved, origins, composed, found.meta, is_fixed, words)
    notes += said
    saved.resume, saved.distributed = None, composed.config.distributed
    for path in (path for path in origins if path.startswith("distributed.")):
        origins[path] = composed.origins[path]
    saved.run.dir, saved.run.name = (
        (str(folder.path.parent), folder.name)
        if folder
        else (composed.config.run.dir, composed.config.run.name)
    )
    if composed.config.run.remote is not None:
        saved.run.remote = composed.config.run.remote
    notes.append(f"resumed from {found.path} with its configuration; typed values override it")
    return Composed(saved, origins, groups, [*composed.notes, *notes], composed.machine)


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
    """Raises UserError if a typed `env=…`, `policy=…` or `algorithm=…` is not the run's own.

    The name of a user's own environment is a label: only its factory counts.
    """
    groups = {word.partition("=")[0] for word in words}
    for path in (
        "env.name",
        "env.factory",
        "policy.name",
        "policy.core",
        "policy.frame_stack",
        "algorithm.name",
    ):
        group = path.partition(".")[0]
        label = (
            path == "env.name" and before["env.factory"] == now["env.factory"] and ":" in now["env.factory"]
        )
        if group in groups and before[path] != now[path] and not label:
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
