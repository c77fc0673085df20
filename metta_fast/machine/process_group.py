"""Ends a child process together with the processes that it started, as one process group.

A group has the number of the process that leads it. Once that process is reaped, the system may give its number to
another program, and a signal to the group would reach a stranger. So a group is killed before its leader is reaped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

POLL_S = 0.01


def has_ended(pid: int) -> bool:
    """Returns whether a child of this process has ended. Does not reap it."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    import psutil  # macOS before Python 3.13

    return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def kill_group(pid: int) -> None:
    """Kills the group that `pid` leads; `pid` must not have been reaped."""
    with suppress(ProcessLookupError, PermissionError):  # no such group; macOS: nothing in it but zombies
        os.killpg(pid, signal.SIGKILL)


def end_group(process: subprocess.Popen[bytes], patience_s: float) -> int:
    """Waits up to patience_s seconds for a process that leads a group, then kills the group and reaps the process.

    Returns:
        Its exit code, as `Popen.returncode`.
    """
    if process.returncode is None:
        deadline = time.monotonic() + patience_s
        while not has_ended(process.pid) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        kill_group(process.pid)
    return process.wait()
