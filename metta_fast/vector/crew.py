"""Holds the processes of the workers backend for the parent: launcher, sockets, tracebacks.

Every descriptor and process that the backend opens is opened here, and `dismiss` ends them all.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

from metta_fast.contracts.errors import UserError
from metta_fast.machine.process_group import kill_group
from metta_fast.vector.job import Job
from metta_fast.vector.messages import Link

LAST_WORDS_S = 0.5
"""Seconds that a failing vector waits for the traceback of a hanging worker."""
TRACEBACK_S = 5.0
"""Seconds that a failing vector waits for the traceback of a worker that has reported an exception."""
END_S = 5.0
"""Seconds that the launcher has to kill its workers; then they and the launcher are killed from here."""

BOOT = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from metta_fast.vector.launcher import main
from metta_fast.vector.messages import Link
main(Link(int(sys.argv[1])), int(sys.argv[3]))
"""


class Crew:
    """Holds the launcher's process, and the sockets and pipes to it and its workers. Has no reference to the vector.

    The job is only queued here: the first `exchange` over the links sends it.

    Raises:
        OSError: no descriptors or no process left; everything that was opened is closed.
    """

    def __init__(self, job: Job, memory_fd: int) -> None:
        self.owner = os.getpid()
        self.pids = [0] * job.num_workers
        """Process ids by worker; 0: not known yet."""
        self._deaths: list[tuple[int, int | None]] = []
        with ExitStack() as here, ExitStack() as there:
            self.link, link_there = _links(here, there)
            pairs = [_links(here, there) for _ in self.pids]
            self.links = [link for link, _ in pairs]
            pipes = [_pipe(here, there) for _ in self.pids]
            self.words = [read for read, _ in pipes]
            sockets, words = [fd for _, fd in pairs], [write for _, write in pipes]
            paths = json.dumps([str(path) for path in sys.path])
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(link_there), paths, str(self.owner)],
                stdin=subprocess.DEVNULL,
                env={
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    "MKL_NUM_THREADS": "1",
                    **os.environ,
                },
                pass_fds=[memory_fd, link_there, *sockets, *words],
                process_group=0,
            )
            self._open = here.pop_all()
        self.link.post((job, memory_fd, sockets, words))

    def is_mine(self) -> bool:
        """Returns False in a forked copy of the parent."""
        return os.getpid() == self.owner

    def has_news(self) -> bool:
        """Returns whether a worker or the launcher died."""
        return self.death() is not None

    def death(self) -> tuple[int, int | None] | None:
        """Returns (worker, wait status) of the first reported death, worker −1 for the launcher, or None."""
        while not (self._deaths and self._deaths[-1][0] < 0):
            try:
                self.link.pull()
                if not self.link.whole:
                    break
                worker, pid, status = self.link.take()
            except (EOFError, OSError):
                self._deaths.append((-1, self._launcher_status()))
                break
            if status is None:
                self.pids[worker] = pid
            else:
                self._deaths.append((worker, status))
        return self._deaths[0] if self._deaths else None

    def _launcher_status(self) -> int | None:
        """Returns the wait status of the launcher, which has closed its socket; None: it has not ended."""
        if not self._ended(END_S):
            return None
        code = self.process.returncode
        return -code if code < 0 else code << 8

    def last_words(self, worker: int) -> str:
        """Returns what the worker has written to its pipe: a traceback, Python's or faulthandler's."""
        return self._read(worker).decode(errors="replace").strip("\0 \n")

    def traceback(self, worker: int) -> str:
        """Returns the traceback of a worker that has reported an exception and writes its traceback now."""
        deadline = time.monotonic() + TRACEBACK_S
        text = self._read(worker)
        while not text.endswith(b"\0") and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self.words[worker], select.POLLIN)
            if not poll.poll(left * 1000):
                break
            part = self._read(worker)
            if not part:  # it has died
                break
            text += part
        return text.decode(errors="replace").strip("\0 \n")

    def _read(self, worker: int) -> bytes:
        """Returns what is in the worker's pipe."""
        text = b""
        with suppress(BlockingIOError):
            while part := os.read(self.words[worker], 65536):
                text += part
        return text

    def state(self, worker: int) -> str:
        """Returns "stopped" (by a signal), "ended", or "" (running, or it cannot be found out: Linux only).
        worker: −1 is the launcher."""
        pid = self.process.pid if worker < 0 else self.pids[worker]
        try:
            with open(f"/proc/{pid}/stat") as file:
                letter = file.read().rpartition(")")[2].split()[0]
        except OSError:
            return ""
        return "stopped" if letter in "Tt" else "ended" if letter in "ZX" else ""

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

    def wait(self, patience_s: float) -> None:
        """Waits for workers that were asked to close; at most patience_s seconds."""
        self.process.send_signal(signal.SIGCONT)  # a stopped launcher could not end
        self._ended(patience_s)

    def dismiss(self) -> None:
        """Ends the launcher and its workers, also stopped ones. May be called twice."""
        if not self.is_mine():
            return
        try:
            self.process.send_signal(signal.SIGCONT)  # a stopped launcher could not end its workers
        finally:
            self._open.close()  # the launcher kills all workers then
            if not self._ended(END_S):
                self._kill()

    def _ended(self, patience_s: float) -> bool:
        """Waits for the launcher's end. Returns False if it has not ended after patience_s seconds."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
            return True
        return False

    def _kill(self) -> None:
        """Kills a launcher that does not end, and its workers, which it cannot have reaped meanwhile."""
        dead = {worker for worker, _ in self._deaths}
        for worker, pid in enumerate(self.pids):
            if pid and worker not in dead:
                kill_group(pid)
        self.process.kill()
        self._ended(END_S)


def _links(here: ExitStack, there: ExitStack) -> tuple[Link, int]:
    """Returns two ends of a connection: the parent's, and the other's descriptor. Each stack closes its end."""
    ours, theirs = socket.socketpair()
    there.enter_context(theirs)
    link = Link(ours.detach(), blocking=False)
    here.callback(link.close)
    return link, theirs.fileno()


def _pipe(here: ExitStack, there: ExitStack) -> tuple[int, int]:
    """Returns a pipe's ends: the parent's, which reads without waiting, and the other's. Each stack closes its end."""
    read, write = os.pipe()
    here.callback(os.close, read)
    there.callback(os.close, write)
    os.set_blocking(read, False)
    return read, write


def cannot_start(num_workers: int, error: OSError) -> UserError | OSError:
    """Returns the error for workers that cannot be started since the system has no more of something."""
    if error.errno not in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC):
        return error
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    cure = {
        errno.EMFILE: f"this process may open {limit}, and each worker needs 4: raise the limit (ulimit -n)",
        errno.ENFILE: "the whole system's limit is reached: end other programs",
        errno.EAGAIN: "the limit of processes is reached (ulimit -u, pids.max): raise it, or end other programs",
    }.get(error.errno, "end other programs, or use fewer environments (env.num_envs)")
    return UserError(
        f"cannot start {num_workers} workers: {os.strerror(error.errno)}; {cure}, "
        "or use fewer workers (vector.num_workers)"
    )


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


def ending(status: int | None) -> str:
    """Describes how a process ended, from its wait status; None: it has closed its socket, but not ended."""
    if status is None:
        return "has closed its socket and hangs"
    if not os.WIFSIGNALED(status):
        return f"exited with code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        return "was killed by SIGKILL (often the system was out of memory: fewer workers or environments)"
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"was killed by {name}"
