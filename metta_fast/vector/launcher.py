"""Runs the fork server of the workers backend: a fresh, single-threaded interpreter that forks and watches workers.

Before it forks, it imports what all workers need: they start sooner and share the memory. It reports each death to the
parent, with the status. A worker's index from the parent makes it ask that worker for its traceback: only the process
that reaps a worker knows that its number is still its own. Once its socket to the parent closes, it kills every worker
and its process group: the socket closes however the parent ends, SIGKILL included. Ctrl-C, SIGTERM and SIGHUP do
nothing here: the parent handles them.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from metta_fast.envs.native._sync import Memory, name_process, ring_fault
from metta_fast.machine.process_group import has_ended, kill_group
from metta_fast.vector import worker
from metta_fast.vector.messages import Link

LOOK_MS = 1000
"""Seconds between two checks that the parent is alive, besides waiting for its socket to close."""


def main(link: Link, parent: int) -> None:
    """Runs the launcher until the parent closes or dies.

    Args:
        link: the socket to the parent.
        parent: the parent's process id, which it sends itself: it may end before this process could ask for it.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
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
    if job.preload:
        with suppress(Exception):  # a worker imports it again, and reports what is wrong
            importlib.import_module(job.preload)
    memory = Memory(job.memory_size, memory_fd)
    os.close(memory_fd)
    pids: dict[int, int] = {}
    launcher = os.getpid()
    for w in range(job.num_workers):
        pid = os.fork()
        if pid == 0:
            keep = {sockets[w], words[w]}
            for fd in [link.fileno(), wake, waker, *sockets, *words]:
                if fd not in keep:
                    os.close(fd)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            worker.main(w, job, memory, Link(sockets[w]), words[w], launcher)
        _own_group(pid)
        pids[pid] = w
    for fd in [*sockets, *words]:
        os.close(fd)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        for pid, w in pids.items():
            link.send((w, pid, None))
        _mind(link, wake, parent, pids, memory)
    except (EOFError, OSError):
        pass  # the parent has closed its socket, or is gone
    finally:
        for pid in pids:
            kill_group(pid)
        for pid in pids:
            os.waitpid(pid, 0)


def _mind(link: Link, wake: int, parent: int, pids: dict[int, int], memory: Memory) -> None:
    """Reports deaths until the parent closes the socket or dies, or no worker is left."""
    poll = select.poll()
    poll.register(link.fileno(), select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for w, pid, status in _ended(pids):
            link.send((w, pid, status))
            ring_fault(memory)
        if not pids:
            return
        ready = {fd for fd, _ in poll.poll(LOOK_MS)}
        if os.getppid() != parent:
            return
        if link.fileno() in ready:
            asked = link.recv()
            for pid, w in pids.items():
                if w == asked:
                    os.kill(pid, signal.SIGUSR1)
        if wake in ready:
            os.read(wake, 4096)


def _ended(pids: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yields (worker, pid, status) of workers that have ended: removes them, kills their children and reaps them."""
    for pid in list(pids):
        if has_ended(pid):
            kill_group(pid)
            yield pids.pop(pid), pid, os.waitpid(pid, 0)[1]


def _own_group(pid: int) -> None:
    """Makes the worker the leader of a process group, so that it and its children can be killed together."""
    with suppress(PermissionError, ProcessLookupError):  # the worker has done it already, or is gone
        os.setpgid(pid, pid)


def _nothing(*_: Any) -> None:
    pass
