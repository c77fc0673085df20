"""Writes a recording as a replay of MettaGrid, version 4, which its viewer MettaScope shows.

    write_mettascope(recording, Path("episode.json.z"))

MettaGrid's own environments bring theirs; the grid world's is made from its tracks (envs/grid/mettascope.py).
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.recording import Recording
from metta_fast.envs.world_views import mettascope_of
from metta_fast.storage.atomic_file import whole

SUFFIX = ".json.z"


def write_mettascope(recording: Recording, path: Path) -> None:
    """Writes the replay, zlib-compressed JSON.

    Raises:
        UserError: this environment has none.
    """
    found = recording.world.mettascope or mettascope_of(recording)
    if found is None:
        raise UserError(
            f"--mettascope {path}: {recording.about.get('env', 'this environment')} is no world of MettaGrid's kind; "
            "such replays are for env=mettagrid (with env.action_repeat=1) and the grid"
        )
    with whole(path) as beside:
        beside.write_bytes(zlib.compress(json.dumps(found).encode()))


def check_mettascope(path: Path) -> None:
    """Raises UserError for a file name that MettaScope does not open."""
    if not path.name.endswith(SUFFIX):
        raise UserError(f"--mettascope {path}: expected a name that ends in {SUFFIX}")
