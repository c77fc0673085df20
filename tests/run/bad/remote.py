# ruff: noqa: E501  (tables)
"""Mistakes in remote storage: addresses, keys in URLs, places without rights or in use, runs that are not there."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from metta_fast.machine.process_clock import process_start
from tests.run.bad.case import Case
from tests.run.bad.keys import TINY
from tests.run.bad.machine import nobody_here

LONG = "n" * 900

ADDRESSES = (
    ("run.remote=''", "run.remote"), ("run.remote=/", "run.remote=/"), ("run.remote=ftp://host/x", "ftp"), ("run.remote=https://host/x", "https"),
    ("run.remote=s3:/bucket/x", "two slashes"), ("run.remote=s3://", "s3://"), ("run.remote=s3://x", "s3://x"), ("run.remote=s3://bucket//x", "empty part"),
    ("run.remote=s3://bucket/../x", "'..'"), (f"run.remote=s3://bucket/{LONG}", "at most"), ("run.remote=~nobody_mf/x", "~nobody_mf"),
    ("run.remote=s3://AKIAABCDEFGHIJKLMNOP:verysecret@bucket/x", "AWS_ACCESS_KEY_ID"), ("run.remote=gs://bucket/x?token=verysecret", "GOOGLE_APPLICATION_CREDENTIALS"),
    ("run.remote=az://container/x?sig=verysecret", "AZURE_STORAGE_SAS_TOKEN"), ("run.remote=[a]", "run.remote"), ("run.remote={a:1}", "run.remote"),
    ("run.remote=/dev/null", "/dev/null/job"), ("run.remote=/proc/x", "/proc/x/job"), ("run.remote={run}/config.yaml", "config.yaml/job"),
    ("run.remote=s3:x", "s3:x"), ("run.remote=memory://", "memory://"),
)  # fmt: skip
RUNS = (
    ("resume=ftp://host/x", "resume=ftp"), ("resume=s3://", "resume=s3://"), ("resume=memory://x", "run's name"), ("resume=memory://x/nonesuch", "no run is kept"),
    ("resume=memory://x/states/step_000000000001", "run's name"), ("resume=s3://key:verysecret@bucket/x/job", "AWS_ACCESS_KEY_ID"),
    ("resume=memory://x/nonesuch run.name=other", "run.name=other"), ("resume=memory://x/nonesuch init_from={run}", "init_from"),
    ("init_from=memory://x/nonesuch", "no run is kept"), ("init_from=s3://", "init_from=s3://"), ("init_from=memory://x", "run's name"),
)  # fmt: skip
COMMANDS = (
    ("eval memory://x/nonesuch", "no run is kept"), ("eval s3://", "s3://"), ("eval ftp://host/x", "ftp"), ("replay memory://x/nonesuch", "no run is kept"),
    ("export memory://x/nonesuch --out p.pt", "no run is kept"), ("eval gs://bucket/x?token=verysecret", "GOOGLE_APPLICATION_CREDENTIALS"),
)  # fmt: skip


def in_use(folder: Path) -> None:
    """Remote storage of a run that a live process trains."""
    place = folder / "bucket" / "job"
    place.mkdir(parents=True)
    (place / "id.json").write_text(json.dumps({"schema": 1, "id": "a" * 32}))
    pid, host = os.getppid(), socket.gethostname()
    lease = {
        "session": "x",
        "time": time.time(),
        "host": host,
        "pid": pid,
        "started": str(process_start(pid)),
    }
    (place / "lease.json").write_text(json.dumps(lease | {"process": f"process {pid} on {host}"}))


def another_run(folder: Path) -> None:
    """Remote storage that holds a run of the same name."""
    place = folder / "bucket" / "job"
    place.mkdir(parents=True)
    (place / "id.json").write_text(json.dumps({"schema": 1, "id": "a" * 32}))


def newer(folder: Path) -> None:
    """Remote storage that a newer version wrote."""
    another_run(folder)
    (folder / "bucket" / "job" / "id.json").write_text(json.dumps({"schema": 99, "id": "a" * 32}))


def foreign(folder: Path) -> None:
    """Remote storage with another program's file."""
    another_run(folder)
    (folder / "bucket" / "job" / "id.json").write_text("hello")


def closed(folder: Path) -> None:
    """Remote storage that this user may not write."""
    (folder / "bucket").mkdir()
    os.chmod(folder / "bucket", 0o700)
    nobody_here(folder)


def cases() -> Iterator[Case]:
    """Yields the cases."""
    for text, says in (*ADDRESSES, *RUNS):
        named = () if "run.name" in text or not text.startswith("run.") else ("run.name=job",)
        yield Case((*TINY, *named, *text.split()), (says,))
    for text, says in COMMANDS:
        yield Case(tuple(text.split()), (says,))
    job = (*TINY, "run.name=job", "run.remote=bucket")
    for before, says in ((in_use, "is in use by process"), (newer, "update metta_fast"), (foreign, "not a run of metta_fast"), (closed, "access is denied")):  # fmt: skip
        yield Case((*job, "resume=auto"), (says, "bucket/job"), before=before)
    yield Case(job, ("holds a run already", "resume=auto"), before=another_run)
    yield Case((*TINY, "resume=bucket/job"), ("is in use by process",), before=in_use)
