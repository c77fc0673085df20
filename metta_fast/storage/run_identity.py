"""Tells whether a checkpoint belongs to the run whose folder it is in.

    runs/<name>/id                 32 hexadecimal digits, drawn when the run begins; a copied or renamed run keeps them
    …/step_…/meta.json             "run_id": the same digits

A checkpoint that was copied elsewhere must not make a resume overwrite what happens to be two folders above it.
Runs and checkpoints of earlier versions have no digits: such a checkpoint belongs to the run if the run's config.yaml
has the same environment, policy and seed.

Place in the flow: run/resume.py and inference/ ask `home`; run/run_writer.py calls `identify` when a run begins.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path
from typing import Any

from metta_fast.storage.atomic_file import whole
from metta_fast.storage.durable import open_regular
from metta_fast.storage.run_folder import RunDir

RUN_ID = "run_id"
"""Key of meta.json."""
_DIGITS = re.compile(r"[0-9a-f]{32}")
_MOST_BYTES = 1 << 20
"""A larger config.yaml or meta.json is not ours."""
_OURS = frozenset(
    {
        *("id", "lock", "config.yaml", "metrics.jsonl", "train.log"),
        *("tensorboard", "wandb", "checkpoints", "replays"),
    }
)
"""What a run's folder may hold before its config.yaml is written."""


def identify(folder: RunDir) -> str:
    """Returns the run's digits; draws and stores them if it has none. Call only while holding the run's lock.

    Raises:
        OSError: the folder cannot be written.
    """
    found = run_digits(folder)
    if found is None:
        found = uuid.uuid4().hex
        with whole(folder.id) as beside:
            beside.write_text(found + "\n")
    return found


def home(path: Path) -> RunDir | None:
    """Returns the run whose folder the checkpoint `path` is in, or None: it is elsewhere, or of another run.

    Reads meta.json without verifying it.

    Raises:
        UserError: something in the run's folder is a link.
    """
    meta = _meta(path)
    for place in dict.fromkeys((Path(os.path.abspath(path)), path.resolve())):
        folder = RunDir(place.parent.parent)
        if folder.checkpoints == place.parent:
            folder.check_links()
        if folder.checkpoints == place.parent and _belongs(meta, folder):
            return folder
    return None


def is_run(folder: RunDir) -> bool:
    """Returns whether training may write into this existing folder: it is a run's, or holds nothing but a run's
    first files."""
    if run_digits(folder) is not None:
        return True
    try:
        names = set(os.listdir(folder.path))
    except OSError:
        return True  # locking it says why
    if "config.yaml" not in names:
        return {name for name in names if not name.startswith(".")} <= _OURS
    return stored_config(folder) is not None


def _belongs(meta: dict[str, Any], folder: RunDir) -> bool:
    drawn, stored = meta.get(RUN_ID), run_digits(folder)
    if drawn is not None:
        return drawn == stored
    config, saved = stored_config(folder), meta.get("config")
    return config is not None and (not config or not isinstance(saved, dict) or _agree(config, saved))


def _agree(config: dict[str, Any], saved: dict[str, Any]) -> bool:
    """Whether environment, policy and seed are the same, as far as both have the key."""
    for group in ("env", "policy", "seed"):
        here, there = config.get(group), saved.get(group)
        if not isinstance(here, dict) or not isinstance(there, dict):
            if here != there:
                return False
        elif any(here[key] != there[key] for key in here.keys() & there.keys() - {"device"}):
            return False
    return True


def run_digits(folder: RunDir) -> str | None:
    """Returns the run's digits, or None if it has none yet."""
    text = _read(folder.id)
    found = _DIGITS.fullmatch(text.strip()) if text is not None else None
    return found[0] if found else None


def stored_config(folder: RunDir) -> dict[str, Any] | None:
    """Returns the run's stored configuration: {} if the file is empty, None if it is another program's."""
    import yaml

    text = _read(folder.config)
    if text is None:
        return None
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if found is None or found == {}:
        return {}
    ours = isinstance(found, dict) and all(
        isinstance(found.get(group), dict) for group in ("env", "policy", "trainer", "run")
    )
    return found if ours else None


def _meta(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path / "meta.json") or "null")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            return file.read(_MOST_BYTES).decode()
    except (OSError, ValueError):
        return None
