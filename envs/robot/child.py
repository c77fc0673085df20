"""Starts processes that load a graphics library for us, and reads their last message (render.py, viewer.py).

Such a process runs a script of this folder, imports the same packages as this process, and ignores Ctrl-C.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any


def start_child(script: Path, arguments: Sequence[str], variables: Mapping[str, str], **streams: Any) -> Any:
    """Starts the script as a `subprocess.Popen`.

    Args:
        variables: environment variables, besides ours.
        streams: Popen's stdin, stdout, stderr and pass_fds.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],  # Python puts the script's folder first in sys.path
        env={**inherited, **variables, "PYTHONPATH": paths},
        start_new_session=True,
        **streams,
    )


def last_line(words: IO[bytes]) -> str:
    """Returns the file's last line that is not blank, or an empty string."""
    words.seek(0)
    lines = [line.strip() for line in words.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
