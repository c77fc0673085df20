"""Processes that load a graphics library for us: what starting one needs, and what it said last (render.py, viewer.py).

Such a process runs a script of this folder, finds the packages that this one finds, and hears no Ctrl-C.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any


def start_child(script: Path, arguments: Sequence[str], variables: Mapping[str, str], **streams: Any) -> Any:
    """A `subprocess.Popen` of the script.

    Args:
        variables: of its environment, beside ours.
        streams: stdin, stdout, stderr and pass_fds, as of Popen.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env={**os.environ, **variables, "PYTHONPATH": paths},
        start_new_session=True,
        **streams,
    )


def last_line(words: IO[bytes]) -> str:
    """The last line in the file that is not blank, or nothing."""
    words.seek(0)
    lines = [line.strip() for line in words.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
