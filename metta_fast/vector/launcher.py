"""Runs the fork server of the workers backend: a fresh, single-threaded interpreter that forks and watches workers.

It reports each death to the parent, with the status. Once its socket to the parent closes, it kills every worker and
its process group: the socket closes however the parent ends, SIGKILL included. Ctrl-C, SIGTERM and SIGHUP do nothing
here: the parent handles them.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from metta_fast.envs.native._sync import Memory, name_process, ring_fault
from metta_fast.vector import worker

LOOK_MS = 1000
"""Seconds between two checks that the parent is alive, besides waiting for its socket to close."""


def main(link: Connection) -> None:
    """Runs the launcher until the parent closes or dies. `link`: the socket to the parent."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, _nothing)  # not SIG_IGN: programs that environments start would inherit that
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    name_process("mf-launcher")
    wake, waker = os.pipe()
    for fd in (wake, waker):
        os.set_blocking(fd, False)
    try:
        job, memory_fd, sockets, words = link.recv()
    except EOFError:
        return
    memory = Memory(job.memory_size, memory_fd)
    os.close(memory_fd)
    pids: dict[int, int] = {}
    for w in range(job.num_workers):
        pid = os.fork()
        if pid == 0:
            keep = {sockets[w], words[w]}
            for fd in [link.fileno(), wake, waker, *sockets, *words]:
                if fd not in keep:
                    os.close(fd)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            worker.main(w, job, memory, Connection(sockets[w]), words[w])
        _own_group(pid)
        pids[pid] = w
    for fd in [*sockets, *words]:
        os.close(fd)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        for pid, w in pids.items():
            link.send((w, pid, None))
        _mind(link, wake, parent, pids, memory)
    except OSError:
        pass  # the parent is gone
    finally:
        for pid in pids:
            _kill(pid)
        for pid in pids:
            os.waitpid(pid, 0)


def _mind(link: Connection, wake: int, parent: int, pids: dict[int, int], memory: Memory) -> None:
    """Reports deaths until the parent closes the socket or dies, or no worker is left."""
    poll = select.poll()
    poll.register(link.fileno(), select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for pid, status in _ended(pids):
            _kill(pid)  # its children
            link.send((pids.pop(pid), pid, status))
            ring_fault(memory)
        if not pids:
            return
        ready = {fd for fd, _ in poll.poll(LOOK_MS)}
        if link.fileno() in ready or os.getppid() != parent:
            return
        if wake in ready:
            os.read(wake, 4096)


def _ended(pids: dict[int, int]) -> list[tuple[int, int]]:
    """Reaps workers that have ended. Returns their (pid, status)."""
    found = []
    for pid in list(pids):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            found.append((pid, status))
    return found


def _own_group(pid: int) -> None:
    """Makes the worker the leader of a process group, so that it and its children can be killed together."""
    with suppress(PermissionError, ProcessLookupError):  # the worker has done it already, or is gone
        os.setpgid(pid, pid)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _nothing(*_: Any) -> None:
    pass
