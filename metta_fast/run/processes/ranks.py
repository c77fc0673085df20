"""Trains as one of the processes that torchrun (or distributed.processes) started.

    rank 0    compose ─► prepare ─► resolve ─► process group ─► folder, configuration, checkpoint to all ─► Trainer
    others    process group ─► configuration and checkpoint from rank 0 ─► Trainer, which writes nothing

Only rank 0 reads the run's folder, so it may be on one machine alone; only rank 0 reports a user's mistake. Processes
of other commands, versions or code than rank 0's are refused.

Place in the flow: cli.py calls it instead of training alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.distributed.own_card import own_card
from metta_fast.distributed.place import Place
from metta_fast.version import __version__


def train_rank(
    words: Sequence[str], place: Place, *, default_hardware: str, trust: bool, began: float
) -> int:
    """Trains as process `place` and returns the exit code.

    Raises:
        UserError: at rank 0 alone; the other processes end without a word.
    """
    crowded = own_card(place)
    with ExitStack() as closing:
        if place.first:
            start, resolved = _compose(words, default_hardware, trust)
            closing.callback(start.release)
            config = resolved.config
            if crowded and config.trainer.device == "cuda" and config.distributed.backend != "gloo":
                raise UserError(
                    f"{place.local_world} processes on this machine are more than its {crowded} GPU"
                    f"{'s' * (crowded > 1)}; give torchrun --nproc-per-node={crowded}, distributed.backend=gloo to "
                    "share them, or trainer.device=cpu"
                )
            from metta_fast.run.early_start import begin

            begin(resolved)
            hello: Any = config.distributed, config.trainer.device == "cuda"
        else:
            hello = None
        try:
            return _train(
                place, words, hello, closing, locals().get("start"), locals().get("resolved"), began
            )
        except UserError:
            if place.first:
                raise
            return 2


def _compose(words: Sequence[str], default_hardware: str, trust: bool) -> tuple[Any, Any]:
    from metta_fast.config.trust import Given
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve
    from metta_fast.run.resume import prepare

    composed = compose(words, default_hardware=default_hardware)
    composed.given = Given(trust=trust)
    start = prepare(composed, words)
    try:
        return start, resolve(start.composed)
    except BaseException:
        start.release()
        raise


def _train(
    place: Place,
    words: Sequence[str],
    hello: Any,
    closing: ExitStack,
    start: Any,
    resolved: Any,
    began: float,
) -> int:
    from metta_fast.distributed import group as groups
    from metta_fast.run.trainer import Trainer

    group = groups.start(place)
    closing.callback(groups.end)
    _check_same(group, words)
    config, gpu = group.broadcast(hello)
    groups.open_(config, gpu=gpu)
    if group.first:
        trainer = Trainer(
            resolved,
            folder=start.folder,
            start=start.checkpoint,
            init=start.init,
            remote=start.remote,
            began=began,
            rank=0,
        )
        group.broadcast(_packed(resolved, trainer.folder.path, start))
        return trainer.run()
    nothing: dict[str, Any] = {}
    resolved, folder, checkpoint, init = _unpacked(group.broadcast(nothing))
    return Trainer(resolved, folder=folder, start=checkpoint, init=init, began=began, rank=group.rank).run()


def _packed(resolved: Any, folder: Path, start: Any) -> dict[str, Any]:
    """Returns what the other processes need: configuration and states, as rank 0 has read them."""
    from metta_fast.config.keys import config_to_dict

    packed = {
        "config": config_to_dict(resolved.config),
        "origins": resolved.origins,
        "groups": resolved.groups,
        "machine": resolved.machine,
        "folder": str(folder),
    }
    for name in ("checkpoint", "init"):
        found = getattr(start, name)
        if found is not None:
            states = {state: found.load(state) for state in ("algorithm", "env")}
            found._ready.update(states)
            packed[name] = (str(found.path), found.meta, states)
    return packed


def _unpacked(packed: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    from metta_fast.config.keys import config_from_dict
    from metta_fast.resolve.resolve import Resolved
    from metta_fast.storage.checkpoint import Checkpoint
    from metta_fast.storage.run_folder import RunDir

    resolved = Resolved(
        config_from_dict(packed["config"]),
        packed["origins"],
        groups=packed["groups"],
        machine=packed["machine"],
    )
    found: list[Checkpoint | None] = []
    for name in ("checkpoint", "init"):
        if name not in packed:
            found.append(None)
            continue
        path, meta, states = packed[name]
        found.append(Checkpoint(Path(path), meta, frozenset(), states))
    return resolved, RunDir(Path(packed["folder"])), found[0], found[1]


def _check_same(group: Any, words: Sequence[str]) -> None:
    """Checks that all processes run the same command with the same code.

    Raises:
        UserError: one does not, named at rank 0.
    """
    import torch

    own = {
        "command": " ".join(words),
        "version of metta_fast": __version__,
        "code of metta_fast": code_digest(),
        "version of torch": torch.__version__,
    }
    wrong = None
    everyone = group.all_of(own)
    for rank, other in enumerate(everyone):
        for what, value in everyone[0].items():
            if other[what] != value and wrong is None:
                wrong = (
                    f"the processes of this run differ in the {what}: process 0 has {value!r}, process {rank} has "
                    f"{other[what]!r}; start all of them with the same command in copies of the same checkout"
                )
    if wrong is not None:
        raise UserError(wrong)


def code_digest() -> str:
    """Returns a digest of the package's Python files: two checkouts of one commit have the same."""
    root, digest = Path(__file__).resolve().parent.parent.parent, hashlib.sha256()
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(folder, name)
                digest.update(str(path.relative_to(root)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
