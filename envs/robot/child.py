"""Starts processes that load a graphics library or compile for us, and reads what they say.

Such a process runs a script of ours, imports the same packages as this process, and ignores Ctrl-C.

    read(process, size, patience_s)    bytes of its output
    why(process, words)                why it ended, from its last line
    end(process, words)                kills it and closes its files
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
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


def read(process: Any, size: int, patience_s: float) -> bytes:
    """Returns `size` bytes of the process's output.

    Raises:
        TimeoutError: they do not come within patience_s seconds.
        BrokenPipeError: the process has ended.
    """
    found, deadline = bytearray(), time.monotonic() + patience_s
    pipe = process.stdout
    while len(found) < size:
        if not select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise TimeoutError
        part = os.read(pipe.fileno(), size - len(found))
        if not part:
            raise BrokenPipeError
        found += part
    return bytes(found)


def why(process: Any, words: IO[bytes]) -> str:
    """Returns the last line that the process wrote to `words`, or how it ended."""
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return "it hangs"
    return last_line(words) or f"it ended with code {code} without a message"


def end(process: Any, words: IO[bytes]) -> None:
    """Kills the process, and closes its pipes and `words`."""
    process.kill()
    process.wait()
    process.stdout.close()
    words.close()
    with suppress(BrokenPipeError):  # something that it had not read
        process.stdin.close()
