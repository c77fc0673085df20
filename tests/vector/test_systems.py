"""Tests what Linux has and other systems lack: memfd_create, pages of 4 KiB, waitid; and numbers of ended processes."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from metta_fast.bench.harness.child_handle import Child, Failed
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.native._sync import Memory
from metta_fast.machine import process_group
from metta_fast.vector import launcher, make_vector
from metta_fast.vector.crew import anonymous_file

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@linux
def test_without_memfd_the_memory_is_a_shared_memory_object_without_a_name(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.mkstemp", None)
    fd = anonymous_file(100_000)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("mf_")]
    assert os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/shm/")
    assert not os.get_inheritable(fd)
    one, other = (np.frombuffer(Memory(100_000, fd), np.uint8) for _ in range(2))
    os.close(fd)
    one[99_999] = 7
    assert other[99_999] == 7
    assert not other[:99_999].any()


@linux
def test_a_file_that_cannot_be_sized_is_closed():
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Invalid argument"):
        anonymous_file(-1)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("memfd", [True, False])
def test_workers_with_pages_of_64_kib(monkeypatch, memfd):
    if not memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(mmap, "PAGESIZE", 65536)
    with make_vector(CounterFactory(), 4, backend="workers", num_workers=2) as vec:
        assert vec.slab.ctypes.data % mmap.ALLOCATIONGRANULARITY == 0
        assert vec.slab.ctypes.data - vec.board.memory.address == 65536
        vec.async_reset(0)
        vec.send(vec.recv(), np.zeros((4, 1), np.int32))
        vec.recv()


class Groups:
    """Replaces os.killpg: notes which groups are killed, and whether their leaders were still unreaped."""

    def __init__(self, monkeypatch, also_raise: type[OSError] | None = None):
        self.killed: list[int] = []
        self.reaped: list[int] = []
        self._killpg, self._also_raise = os.killpg, also_raise
        monkeypatch.setattr(os, "killpg", self)

    def __call__(self, pid: int, number: int) -> None:
        self.killed.append(pid)
        if not Path(f"/proc/{pid}").exists():
            self.reaped.append(pid)
        self._killpg(pid, number)
        if self._also_raise:
            raise self._also_raise


def leader() -> subprocess.Popen:
    """A process that ends at once and leaves a child in its group."""
    return subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!"], stdout=subprocess.PIPE, process_group=0)


def wait_until(done) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@linux
@pytest.mark.parametrize("waitid", [True, False])
@pytest.mark.parametrize("error", [None, PermissionError])
def test_a_group_is_killed_before_its_leader_is_reaped(monkeypatch, waitid, error):
    if not waitid:
        monkeypatch.delattr(os, "waitid")
    groups = Groups(monkeypatch, error)
    process = leader()
    child = int(process.stdout.readline())
    process.stdout.close()
    wait_until(lambda: process_group.has_ended(process.pid))
    assert is_running(child)
    assert process_group.end_group(process, 5.0) == 0
    assert (groups.killed, groups.reaped) == ([process.pid], [])
    wait_until(lambda: not is_running(child))
    assert process_group.end_group(process, 5.0) == 0
    assert groups.killed == [process.pid]  # not again: the number may be another program's


@linux
def test_a_group_whose_leader_does_not_end_is_killed_after_the_patience(monkeypatch):
    process = subprocess.Popen(["sleep", "1000"], process_group=0)
    assert not process_group.has_ended(process.pid)
    assert process_group.end_group(process, 0.1) == -signal.SIGKILL


@linux
def test_the_launcher_kills_a_workers_children_before_it_reaps_the_worker(monkeypatch):
    groups = Groups(monkeypatch)
    process = leader()
    child = int(process.stdout.readline())
    process.stdout.close()
    pids = {process.pid: 3, os.getpid(): 4}
    monkeypatch.setattr(launcher, "has_ended", lambda pid: pid == process.pid)
    wait_until(lambda: process_group.has_ended(process.pid))
    assert list(launcher._ended(pids)) == [(3, process.pid, 0)]
    assert pids == {os.getpid(): 4}
    assert (groups.killed, groups.reaped) == ([process.pid], [])
    wait_until(lambda: not is_running(child))
    process.returncode = 0  # reaped by the launcher's function


@linux
def test_a_benchmarks_child_that_ended_is_not_signalled_again(monkeypatch):
    groups = Groups(monkeypatch)
    child = Child("ends", command=[sys.executable, "-c", "input()"])
    with pytest.raises(Failed, match="exit code 0"):
        child.ask(do="nothing")
    child.close()
    assert (groups.killed, groups.reaped) == ([child._process.pid], [])
