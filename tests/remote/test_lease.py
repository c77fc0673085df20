"""Tests the lease: one session writes a run; a dead one is replaced at once, a live one never, by any clock."""

import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.storage.remote import lease as module
from metta_fast.storage.remote.files import RemoteError
from metta_fast.storage.remote.lease import InUse, Lease, LeaseLost
from metta_fast.storage.remote.open_files import open_files
from tests.remote.places import RUN, Faulty, Switch, place

NAME = "lease.json"


@pytest.fixture
def files(tmp_path):
    return open_files(place("memory", tmp_path))


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(module, "RENEW_S", 0.05)
    monkeypatch.setattr(module, "WATCH_S", 0.5)
    monkeypatch.setattr(module, "POLL_S", 0.02)


def lease(files):
    return Lease(files, NAME, RUN, "memory://x/job")


def other(files, **change):
    """A lease of another machine."""
    entry = {"session": "x", "run": RUN, "renewals": 1, "time": time.time(), "host": "elsewhere", "pid": 1}
    files.write(
        NAME, json.dumps(entry | {"started": "1", "process": "process 1 on elsewhere"} | change).encode()
    )


def test_take_renew_release(files):
    mine = lease(files)
    mine.take()
    first = json.loads(files.read(NAME))
    time.sleep(0.3)
    assert json.loads(files.read(NAME))["renewals"] > first["renewals"]
    mine.check()
    mine.release()
    mine.release()
    with pytest.raises(RemoteError):
        files.read(NAME)
    lease(files).take()


def test_a_live_session_of_this_machine_is_refused_at_once(files):
    mine = lease(files)
    mine.take()
    began = time.monotonic()
    with pytest.raises(
        InUse, match=rf"memory://x/job is in use by process \d+ on {socket.gethostname()}.*run\.name"
    ) as error:
        lease(files).take()
    assert time.monotonic() - began < 0.3
    assert isinstance(error.value, UserError)
    mine.release()


def test_a_dead_session_of_this_machine_is_replaced_at_once(files):
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    other(files, host=socket.gethostname(), pid=int(done.stdout), started="1.0")
    began = time.monotonic()
    lease(files).take()
    assert time.monotonic() - began < 0.3


@pytest.mark.parametrize("clock_s", [0, -100, 100])
def test_a_live_session_of_another_machine_is_seen_to_live(files, clock_s):
    ended = threading.Event()

    def renew():
        number = 0
        while not ended.wait(0.05):
            number += 1
            other(files, renewals=number, time=time.time() + clock_s)

    other(files, time=time.time() + clock_s)
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(InUse, match="elsewhere"):
            lease(files).take()
    finally:
        ended.set()
        thread.join()


def test_a_dead_session_of_another_machine_is_replaced_after_watching(files, caplog):
    other(files)
    began = time.monotonic()
    lease(files).take()
    assert 0.5 <= time.monotonic() - began < 2.0
    assert "waiting up to" in caplog.text


def test_an_old_lease_is_replaced_at_once(files):
    other(files, time=time.time() - 3600)
    began = time.monotonic()
    lease(files).take()
    assert time.monotonic() - began < 0.3


def test_a_given_back_lease_is_noticed_while_watching(files):
    other(files)
    threading.Timer(0.1, lambda: files.remove([NAME])).start()
    began = time.monotonic()
    lease(files).take()
    assert time.monotonic() - began < 0.45


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"time": "x", "host": 3, "pid": []}']
)
def test_damaged_leases_belong_to_nobody(files, content):
    files.write(NAME, content)
    lease(files).take()


def test_the_earlier_of_two_sees_that_it_lost(files):
    mine = lease(files)
    mine.take()
    other(files)
    time.sleep(0.3)
    with pytest.raises(LeaseLost, match="elsewhere"):
        mine.check()
    mine.release()
    assert json.loads(files.read(NAME))["session"] == "x"  # not the loser's to remove


def test_looking_sees_it_at_once(files, monkeypatch):
    monkeypatch.setattr(module, "RENEW_S", 100.0)
    mine = lease(files)
    mine.take()
    mine.look()
    other(files)
    with pytest.raises(LeaseLost):
        mine.look()


def test_renewals_survive_an_outage(files):
    switch = Switch()
    mine = lease(Faulty(files, switch))
    mine.take()
    switch.error = RemoteError("failed", "down")
    time.sleep(0.2)
    switch.error = None
    before = json.loads(files.read(NAME))["renewals"]
    time.sleep(0.2)
    assert json.loads(files.read(NAME))["renewals"] > before
    mine.check()


def test_a_session_of_this_process_that_could_not_give_it_back_is_replaced(files):
    switch = Switch()
    mine = lease(Faulty(files, switch))
    mine.take()
    switch.error = RemoteError("failed", "down")
    mine.release()
    files.read(NAME)  # still there
    lease(files).take()


def test_no_rights_are_told(files):
    switch = Switch()
    switch.error = RemoteError("denied", "403")
    with pytest.raises(RemoteError, match="403"):
        lease(Faulty(files, switch)).take()
