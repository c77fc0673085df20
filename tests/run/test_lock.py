"""Tests the lock of a run's folder: who holds it, who inherits it, and file systems that have no locks."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.storage import run_lock
from metta_fast.storage.run_folder import RunDir, create
from metta_fast.storage.run_lock import RunLocked

HERE = socket.gethostname()


@pytest.fixture
def folder(tmp_path):
    return create(str(tmp_path), "r", "grid").path


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


@contextmanager
def killed_trainer(folder, start_child):
    """A process that locks the run, starts a child, and is killed. Yields the dead process; then ends the child.

    start_child: statements that leave the child's number in `child`.
    """
    code = f"""
import ctypes, os, pathlib, signal, subprocess, sys, time
from metta_fast.storage.run_folder import RunDir
run = RunDir(pathlib.Path({str(folder)!r}))
run.lock()
{start_child}
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as trainer:
        child = int(trainer.stdout.readline())
        trainer.wait()
        try:
            os.kill(child, 0)  # it lives on
            yield trainer
        finally:
            os.kill(child, signal.SIGKILL)


OS_FORK = "child = os.fork()\nif child == 0:\n    time.sleep(60); os._exit(0)"
THREADS_FORK = """
import threading, queue
said = queue.Queue()
def work():
    child = os.fork()
    if child == 0:
        time.sleep(60); os._exit(0)
    said.put(child)
threading.Thread(target=work).start()
child = said.get()
"""
MULTIPROCESSING = """
import multiprocessing
process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
process.start()
child = process.pid
"""
PROGRAM = "child = subprocess.Popen(['sleep', '60'], close_fds=False).pid"


@pytest.mark.parametrize(
    "start_child",
    [OS_FORK, THREADS_FORK, MULTIPROCESSING, PROGRAM],
    ids=["fork", "in_a_thread", "multiprocessing", "program"],
)
def test_a_child_that_outlives_a_killed_trainer_does_not_hold_its_lock(folder, start_child):
    with killed_trainer(folder, start_child):
        run, deadline = RunDir(folder), time.monotonic() + 30
        while True:
            try:
                run.lock()
                break
            except RunLocked:  # the child may not have run yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        run.unlock()


def test_a_child_of_native_code_is_named_as_what_it_is(folder):
    """Nobody tells it to close the lock. The message does not claim that the dead process trains."""
    native = "libc = ctypes.CDLL(None)\nchild = libc.fork()\nif child == 0:\n    libc.sleep(60); os._exit(0)"
    with killed_trainer(folder, native) as trainer:
        with pytest.raises(RunLocked) as told:
            RunDir(folder).lock()
        assert f"process {trainer.pid} on {HERE}, which no longer runs here" in str(told.value)
        assert f"`fuser {folder / 'lock'}`" in str(told.value)
        assert "is being trained" not in str(told.value)


def test_a_forked_child_leaves_the_parents_lock_alone(folder):
    run = RunDir(folder)
    run.lock()
    text = (folder / "lock").read_text()
    child = os.fork()
    if child == 0:
        run.unlock()  # as when it leaves a `with` block of its parent
        os._exit(0)
    os.waitpid(child, 0)
    assert (folder / "lock").read_text() == text
    with pytest.raises(RunLocked, match=f"process {os.getpid()} on "):
        RunDir(folder).lock()
    run.unlock()
    assert (folder / "lock").read_text() == ""


def test_a_forked_child_can_lock_another_run(folder, tmp_path):
    run, other = RunDir(folder), create(str(tmp_path), "other", "grid")
    run.lock()
    child = os.fork()
    if child == 0:
        other.lock()
        os._exit(0 if f"process {os.getpid()} " in (other.path / "lock").read_text() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.unlock()


def test_a_second_run_in_the_same_process_is_refused_and_harms_nothing(folder):
    run = RunDir(folder)
    run.lock()
    for _ in range(2):
        with pytest.raises(RunLocked, match=f"being trained by process {os.getpid()}"):
            RunDir(folder).lock()
    code = (
        "import pathlib, sys; from metta_fast.storage.run_folder import RunDir\n"
        f"RunDir(pathlib.Path({str(folder)!r})).lock()"
    )
    (folder / "lock").read_text()  # as a callback that copies the folder
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"being trained by process {os.getpid()}" in other.stderr
    run.unlock()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_worker_processes_do_not_have_the_lock(folder):
    from metta_fast.envs.counter import CounterFactory
    from metta_fast.vector import make_vector

    def children(pid):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()):
                yield child
                yield from children(child)

    run = RunDir(folder)
    run.lock()
    vec = make_vector(CounterFactory(), 4, backend="workers", num_workers=2)
    try:
        found = list(children(os.getpid()))
        assert len(found) >= 3  # a launcher and two workers
        for child in found:
            files = [os.readlink(f"/proc/{child}/fd/{n}") for n in os.listdir(f"/proc/{child}/fd")]
            assert str(folder / "lock") not in files
    finally:
        vec.close()
        run.unlock()


# ── errors of the system ──


def fails(monkeypatch, code):
    def flock(file, how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EACCES])
def test_a_lock_held_elsewhere_is_refused(folder, monkeypatch, code):
    (folder / "lock").write_text("process 77 on elsewhere\nstarted 5.0\n")
    before = descriptors()
    fails(monkeypatch, code)
    with pytest.raises(RunLocked, match="being trained by process 77 on elsewhere"):
        RunDir(folder).lock()
    assert descriptors() == before
    assert (folder / "lock").read_text() == "process 77 on elsewhere\nstarted 5.0\n"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_without_file_locks_a_process_of_this_machine_is_still_refused(folder, monkeypatch, caplog, code):
    fails(monkeypatch, code)
    before = descriptors()
    run = RunDir(folder)
    run.lock()
    assert "has no file locks" in caplog.text
    with pytest.raises(RunLocked, match=f"being trained by process {os.getpid()}"):
        RunDir(folder).lock()
    run.unlock()
    run.lock()
    run.unlock()
    assert descriptors() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "half a li",
        "process 77 on elsewhere\nstarted 5.0\n",
        f"process {os.getpid()} on {HERE}\nstarted 0.01\n",  # the number was used again
        f"process {2**22 + 1} on {HERE}\nstarted 5.0\n",
    ],
    ids=["empty", "half a line", "elsewhere", "number used again", "gone"],
)
def test_without_file_locks_a_run_whose_process_is_gone_is_free(folder, monkeypatch, text):
    fails(monkeypatch, errno.ENOSYS)
    (folder / "lock").write_text(text)
    run = RunDir(folder)
    run.lock()
    assert (folder / "lock").read_text().startswith(f"process {os.getpid()} on {HERE}\n")
    run.unlock()


def test_a_lock_that_fails_is_told_with_its_reason(folder, monkeypatch):
    before = descriptors()
    fails(monkeypatch, errno.EIO)
    with pytest.raises(UserError, match=r"cannot lock the run's folder .*: Input/output error; .*run\.dir="):
        RunDir(folder).lock()
    assert descriptors() == before


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_full_disk_at_locking_leaves_nothing_held(folder, monkeypatch, call):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(run_lock.os, call, full)
        with pytest.raises(UserError, match="cannot write into the run's folder"):
            RunDir(folder).lock()
    assert descriptors() == before
    run = RunDir(folder)
    run.lock()
    run.unlock()


def test_a_full_disk_at_unlocking_releases(folder, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = descriptors()
    run = RunDir(folder)
    run.lock()
    with monkeypatch.context() as patch:
        patch.setattr(run_lock.os, "ftruncate", full)
        run.unlock()
        run.unlock()
    assert descriptors() == before
    other = RunDir(folder)
    other.lock()
    other.unlock()
