"""Kills a run with remote storage at random moments, mostly within an upload, and continues it on an empty machine.

    python -m tests.remote.kills --kills 50
    python -m tests.remote.kills --kills 20 --remote s3://bucket/runs        # keys and endpoint in the environment

Each session is a process of its own (tests/run/kills.py) whose uploads are slowed, that gets SIGKILL. After each kill
every state in remote storage is complete, byte for byte, and the newest is no older than before. Two thirds of the
sessions begin without the local folder. At the end weights, optimizer, environments and metrics are those of an
undisturbed run, bit for bit. Ends with 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from metta_fast.storage.remote import bucket_files, folder_files, run_store
from metta_fast.storage.remote.address import parse
from metta_fast.storage.remote.open_files import open_files
from metta_fast.storage.remote.run_store import RunStore
from tests.run.kills import HANGS_S, LOG, check_equal, finish, start

EMPTY = 2 / 3
"""Part of the sessions that begin on an empty machine."""
EPOCHS_PER_KILL = 100
SLOWEST_S = 0.01
"""Longest wait before each upload."""


def slow_uploads() -> None:
    """Makes uploads of this process and its children slow and cut into many parts."""
    run_store.PART_BYTES = 2000
    for files in (folder_files.FolderFiles, bucket_files.BucketFiles):

        def write(self: object, name: str, data: bytes, before: Callable[..., None] = files.write) -> None:
            time.sleep(random.uniform(0.0, SLOWEST_S))
            before(self, name, data)

        files.write = write  # type: ignore[method-assign]


def look(remote: str) -> int:
    """Checks every state in remote storage; the newest one's step, −1: none."""
    address = parse(f"{remote}/r")
    store = RunStore(open_files(address), address)
    steps = store.steps()
    for step in steps:
        for part in store.state(step).parts():
            data = store.files.read(f"parts/{part.sha256}")
            assert hashlib.sha256(data).hexdigest() == part.sha256
    return steps[-1] if steps else -1


def newest(remote: str) -> int:
    """The step of the newest state by its name alone."""
    address = parse(f"{remote}/r")
    return max(RunStore(open_files(address), address).steps(), default=-1)


def kill_once(folder: Path, remote: str, epochs: int, least: int) -> str:
    """A session that is killed at a random moment after it has uploaded a state; what it was at."""
    words = (f"run.remote={remote}", "run.keep_checkpoints=2")
    pid, began = start(folder, epochs, words), time.monotonic()
    more = random.randint(1, 3)
    seen, last = 0, least
    while seen < more:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        if time.monotonic() - began > HANGS_S:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"no state within {HANGS_S} s: {(folder / LOG).read_text()}")
        now = newest(remote)
        seen, last = seen + (now > last), max(now, last)
        time.sleep(0.005)
    time.sleep(random.uniform(0.0, 0.2))
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = (folder / LOG).read_text()
    assert code in (-9, 0), f"the session ended by itself with {code}: {text}"
    assert "Traceback" not in text, text
    return "too late" if code == 0 else "killed"


def many_kills(
    folder: Path, kills: int, remote: str | None = None, say: Callable[[str], None] = print
) -> str:
    """Trains once unbroken and once with so many kills. Returns what was seen; raises AssertionError."""
    slow_uploads()
    whole, broken = folder / "whole", folder / "broken"
    remote = remote or str(folder / "bucket")
    for path in (whole, broken):
        path.mkdir()
    seen: Counter[str] = Counter()
    step, epochs = -1, EPOCHS_PER_KILL * kills
    for number in range(kills):
        if random.random() < EMPTY:
            shutil.rmtree(broken / "r", ignore_errors=True)
            seen["on an empty machine"] += 1
        seen[kill_once(broken, remote, epochs, step)] += 1
        found = look(remote)
        assert found >= step, (found, step)
        step = found
        say(f"{number + 1}: all states are complete; the newest is of step {step}")
        if seen["too late"]:
            break
    assert step > 0
    finish(whole, epochs)
    shutil.rmtree(broken / "r", ignore_errors=True)
    finish(broken, epochs, (f"run.remote={remote}",))
    check_equal(whole, broken)
    text = ", ".join(f"{count} {moment}" for moment, count in seen.most_common())
    return f"{kills} sessions ({text}), the same bit for bit as the unbroken run at step {epochs * 256}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--remote", help="where; a folder by default")
    args = parser.parse_args(argv)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seen = many_kills(Path(folder), args.kills, args.remote, lambda text: print(text, flush=True))
    print(f"{seen}; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
