"""Keeps two sessions from writing one run in remote storage: a small file that the session which writes renews.

    lease = Lease(files, "lease.json", run_id, "s3://bucket/runs/job")
    lease.take()          # InUse, if another session renews it
    lease.check()         # LeaseLost, if another one has taken over meanwhile
    lease.release()

A session that ends gives its lease back. One that was killed leaves it: the next session of the run takes it over at
once on the same machine, or if it is minutes old, and otherwise after watching for `WATCH_S` that nobody renews it.
Machines' clocks need not agree for that. Buckets have no locks: should two sessions write in spite of it, because one
could not reach the bucket for a while, the later one has taken over; the earlier one sees that and uploads no more.

Place in the flow: run/take_over/remote_run.py takes it; uploads.py checks it before it writes a state.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.machine.process_clock import process_start
from metta_fast.storage.remote.files import Files, RemoteError, put

LOG = logging.getLogger("metta_fast.storage.remote.lease")
RENEW_S = 20.0
"""Seconds between two renewals."""
WATCH_S = 60.0
"""A lease that was not renewed for this long while it was watched belongs to nobody any more."""
STALE_S = 300.0
"""A lease older than this by both clocks belongs to nobody any more; it need not be watched."""
POLL_S = 2.0
_RELEASED: set[str] = set()
"""Sessions of this process that have ended: where the bucket failed just then, their leases are still there."""


class InUse(UserError):
    """Another session trains this run."""


class LeaseLost(Exception):
    """Another session of the run has taken over."""


class Lease:
    """Holds the lease between `take` and `release`; a thread renews it."""

    def __init__(self, files: Files, name: str, run: str, where: str) -> None:
        """Asks for nothing yet.

        Args:
            run: the run's digits.
            where: the run's address, for messages.
        """
        self._files, self._name, self._run, self._where = files, name, run, where
        self._session = uuid.uuid4().hex
        self._renewals = 0
        self._lost: str | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Whether `take` has succeeded."""
        return self._thread is not None

    def take(self, *, watch: bool = True) -> None:
        """Takes the lease.

        Args:
            watch: if another session may still have it, wait up to `WATCH_S` to see whether it renews it; False:
                raise InUse instead.

        Raises:
            InUse: another session has it.
            RemoteError: the lease cannot be read or written.
        """
        if self.held:
            return
        found = self._read()
        if found is not None and not _left(found):
            if _runs_here(found) or not watch:
                raise self._in_use(found)
            self._watch(found)
        self._write()
        now = self._read()
        if now is not None and now.get("session") != self._session:  # both took it at the same moment
            raise self._in_use(now)
        self._closed.clear()
        self._thread = threading.Thread(target=self._keep, name="mf-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises LeaseLost if another session was seen to have taken over."""
        if self._lost is not None:
            raise LeaseLost(self._lost)

    def look(self) -> None:
        """Asks whether the lease is still this session's.

        Raises:
            LeaseLost: it is not.
            RemoteError: it cannot be read.
        """
        self._compare(self._read())
        self.check()

    def release(self) -> None:
        """Gives the lease back; may be called twice. What fails is left to the lease's age."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        _RELEASED.add(self._session)
        self._closed.set()
        thread.join(timeout=1.0)  # a renewal on its way may hang
        if self._lost is None and not thread.is_alive():
            with suppress(RemoteError):
                found = self._read()
                if found is not None and found.get("session") == self._session:
                    self._files.remove([self._name])

    def _watch(self, found: dict[str, Any]) -> None:
        LOG.warning(
            "%s was in use by %s %.0f s ago; waiting up to %.0f s to see whether it still is",
            self._where,
            found.get("process", "another process"),
            max(time.time() - _number(found.get("time")), 0.0),
            WATCH_S,
        )
        until = time.monotonic() + WATCH_S
        while time.monotonic() < until:
            time.sleep(POLL_S)
            now = self._read()
            if now is None:
                return
            if now != found:
                raise self._in_use(now)

    def _in_use(self, found: dict[str, Any]) -> InUse:
        return InUse(
            f"{self._where} is in use by {found.get('process', 'another process')}, which trains a run there; stop it "
            "first, or start another run with run.name=…"
        )

    def _keep(self) -> None:
        while not self._closed.wait(RENEW_S):
            with suppress(RemoteError):  # uploads.py reports a bucket that fails
                self._compare(self._read())
                if self._lost is not None or self._closed.is_set():
                    return
                self._write()

    def _compare(self, found: dict[str, Any] | None) -> None:
        if self.held and found is not None and found.get("session") != self._session:
            self._lost = str(found.get("process", "another process"))

    def _write(self) -> None:
        self._renewals += 1
        process = f"process {os.getpid()} on {socket.gethostname()}"
        entry = {"session": self._session, "run": self._run, "renewals": self._renewals, "time": time.time()}
        entry |= {"process": process, "started": str(process_start("self")), "host": socket.gethostname()}
        put(self._files, self._name, json.dumps(entry | {"pid": os.getpid()}).encode())

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._files.read(self._name))
        except RemoteError as error:
            if error.kind == "missing":
                return None
            raise
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def _left(found: dict[str, Any]) -> bool:
    """Whether the session surely has ended: it was this process's or this machine's, or the lease is old."""
    if found.get("session") in _RELEASED:
        return True
    if found.get("host") == socket.gethostname() and process_start("self") is not None:
        return not _runs_here(found)
    return abs(time.time() - _number(found.get("time"))) > STALE_S


def _runs_here(found: dict[str, Any]) -> bool:
    """Whether the session's process is one of this machine that still runs."""
    if found.get("host") != socket.gethostname():
        return False
    start = process_start(str(found.get("pid")))
    return start is not None and str(start) == found.get("started")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
