"""Holds the processes of the workers backend for the parent: launcher, sockets, tracebacks.

Every descriptor and process that the backend opens is opened here, and `dismiss` ends them all.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection

from metta_fast.contracts.vector import WorkerError
from metta_fast.vector.job import Job

LAST_WORDS_S = 0.5
"""Seconds that a failing vector waits for the traceback of a hanging worker."""

BOOT = """\
import sys
from multiprocessing.connection import Connection
link = Connection(int(sys.argv[1]))
sys.path[:] = link.recv()
from metta_fast.vector.launcher import main
main(link, int(sys.argv[2]))
"""


class Crew:
    """Holds the launcher's process, and the sockets and pipes to it and its workers. Has no reference to the vector."""

    def __init__(self, job: Job, memory_fd: int) -> None:
        self.owner = os.getpid()
        self.pids = [0] * job.num_workers
        link, link_there = _pair()
        pairs = [_pair() for _ in range(job.num_workers)]
        pipes = [os.pipe() for _ in range(job.num_workers)]
        self.link = Connection(link)
        self.links = [Connection(here) for here, _ in pairs]
        self.words = [read for read, _ in pipes]
        for fd in self.words:
            os.set_blocking(fd, False)
        there = [link_there, *(fd for _, fd in pairs), *(write for _, write in pipes)]
        environ = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(link_there), str(self.owner)],
                stdin=subprocess.DEVNULL,
                env=environ,
                pass_fds=[memory_fd, *there],
                process_group=0,
            )
        except OSError:
            self.close()
            raise
        finally:
            for fd in there:
                os.close(fd)
        self._deaths: list[tuple[int, int]] = []
        try:
            self.link.send(sys.path)
            self.link.send((job, memory_fd, [fd for _, fd in pairs], [write for _, write in pipes]))
        except OSError as error:
            self.dismiss(0.0)
            raise WorkerError(
                "the process that starts the workers ended at once; its error is printed above"
            ) from error

    def is_mine(self) -> bool:
        """Returns False in a forked copy of the parent."""
        return os.getpid() == self.owner

    def has_news(self) -> bool:
        """Returns whether a worker or the launcher died."""
        return self.death() is not None

    def death(self) -> tuple[int, int] | None:
        """Returns (worker, wait status) of the first reported death, worker −1 for the launcher, or None."""
        while not (self._deaths and self._deaths[-1][0] < 0) and self.link.poll(0):
            try:
                worker, pid, status = self.link.recv()
            except (EOFError, OSError):
                code = self.process.wait(5.0)
                self._deaths.append((-1, -code if code < 0 else code << 8))
                break
            if status is None:
                self.pids[worker] = pid
            else:
                self._deaths.append((worker, status))
        return self._deaths[0] if self._deaths else None

    def last_words(self, worker: int) -> str:
        """Returns what the worker has written to its pipe: a traceback, Python's or faulthandler's."""
        text = b""
        with suppress(BlockingIOError):
            while part := os.read(self.words[worker], 65536):
                text += part
        return text.decode(errors="replace").strip()

    def is_stopped(self, worker: int) -> bool:
        """Returns whether a signal has stopped the process (Linux only)."""
        try:
            with open(f"/proc/{self.pids[worker]}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] in "Tt"
        except OSError:
            return False

    def where_is_it(self, worker: int) -> str:
        """Returns the traceback of a hanging worker, or "" if it sends none."""
        if not self.pids[worker]:
            return ""  # not even forked yet
        try:
            self.link.send(worker)  # see launcher.py
        except OSError:
            return ""
        deadline = time.monotonic() + LAST_WORDS_S
        words = ""
        while not words and time.monotonic() < deadline:
            time.sleep(0.02)
            words = self.last_words(worker)
        return words

    def close(self) -> None:
        for link in [self.link, *self.links]:
            link.close()
        for fd in self.words:
            os.close(fd)

    def dismiss(self, patience_s: float) -> None:
        """Ends the launcher and its workers. Workers that were asked to close have patience_s seconds for it."""
        if not self.is_mine():
            return
        try:
            if patience_s:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience_s)
        finally:
            self.close()
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _pair() -> tuple[int, int]:
    """Returns two connected stream sockets."""
    here, there = socket.socketpair()
    return here.detach(), there.detach()


def anonymous_file(size: int) -> int:
    """Returns a descriptor of `size` zero bytes of shared memory, which has no name in the file system."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("metta_fast", os.MFD_CLOEXEC)
    else:  # macOS
        import _posixshmem

        name = f"/mf_{secrets.token_hex(8)}"  # macOS allows 31 characters
        fd = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
        _posixshmem.shm_unlink(name)
    try:
        os.ftruncate(fd, size)
    except OSError:
        os.close(fd)
        raise
    return fd


def ending(status: int) -> str:
    """Describes how a process ended, from its wait status."""
    if not os.WIFSIGNALED(status):
        return f"exited with code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        return "was killed by SIGKILL (often the system was out of memory: fewer workers or environments)"
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"was killed by {name}"
