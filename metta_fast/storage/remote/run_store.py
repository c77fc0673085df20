"""Keeps one run in remote storage. Every step that is interrupted leaves the states before it as they were.

    <run.remote>/<run.name>/
        id.json                          the run's digits (storage/run_identity.py)
        lease.json                       who writes (lease.py)
        states/step_000000123456.json    a complete state: names its parts (manifest.py); written last, removed first
        parts/<sha256>                   pieces of states' files, each once, whichever states have it
        files/…                          metrics, configuration, logs, replays: as in the run's folder

A part is named by its checksum, so nothing is ever overwritten by something else: an upload that was interrupted
leaves parts that the next one uses, and a replay buffer's file that several states share is uploaded once.

Place in the flow: uploads.py writes states in the background; fetch.py reads them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from metta_fast.contracts.errors import UserError
from metta_fast.storage.checkpoint import highest_score
from metta_fast.storage.durable import open_regular
from metta_fast.storage.remote.address import Address
from metta_fast.storage.remote.files import Files, RemoteError, put
from metta_fast.storage.remote.manifest import DamagedManifest, NewerManifest, Part, State, decode, encode

PART_BYTES = 8 << 20
"""Size of a part; also the most that an upload holds in memory."""
GROWING_BYTES = 1 << 20
"""Size of the parts of metrics.jsonl, of which each state has the beginning of the next one's."""
METRICS = "metrics.jsonl"
"""The one file of a state that is not its checkpoint's: a resumed run continues its rows."""
SCHEMA = 1
_STATE = re.compile(r"step_(\d{1,18})\.json")


def file_name(step: int) -> str:
    """Returns the name of a state's manifest."""
    return f"states/step_{step:012d}.json"


class RunStore:
    """One run's states in remote storage. Its methods raise RemoteError."""

    def __init__(self, files: Files, address: Address) -> None:
        self.files, self.address = files, address
        self._parts: dict[str, int] | None = None
        """Bytes of each part that is there; None: not listed yet."""

    def run_id(self) -> str | None:
        """Returns the digits of the run that is kept here; None: there is none.

        Raises:
            UserError: a newer version of metta_fast wrote it, or it is something else.
        """
        try:
            found = json.loads(self.files.read("id.json"))
            if found["schema"] > SCHEMA:
                raise UserError(
                    f"{self.address} has schema {found['schema']}, but this version of metta_fast reads up to "
                    f"{SCHEMA}: update metta_fast"
                )
            return str(found["id"])
        except RemoteError as error:
            if error.kind == "missing":
                return None
            raise
        except (ValueError, LookupError, TypeError) as error:
            raise UserError(
                f"{self.address}/id.json is not a run of metta_fast; choose another name with run.name=…, or another "
                "place with run.remote=…"
            ) from error

    def write_id(self, digits: str) -> None:
        """Writes the run's digits."""
        put(self.files, "id.json", json.dumps({"schema": SCHEMA, "id": digits}).encode())

    def steps(self) -> list[int]:
        """Returns the steps of all states, ascending."""
        found = (_STATE.fullmatch(name) for name in self.files.sizes("states"))
        return sorted(int(match[1]) for match in found if match)

    def state(self, step: int) -> State:
        """Reads the manifest of a state.

        Raises:
            DamagedManifest: it was cut or altered, or names parts that are not there.
            UserError: a newer version of metta_fast wrote it.
        """
        try:
            found = decode(self.files.read(file_name(step)))
        except NewerManifest as error:
            raise UserError(f"{self.address}/{file_name(step)} has {error}: update metta_fast") from error
        except RemoteError as error:
            if error.kind == "missing":
                raise DamagedManifest("it is gone") from error
            raise
        if found.step != step:
            raise DamagedManifest(f"it is of step {found.step}")
        there = self.parts()
        missing = [part for part in found.parts() if there.get(part.sha256) != part.bytes]
        if missing:
            raise DamagedManifest(f"{len(missing)} of its parts are missing or cut short")
        return found

    def parts(self, *, again: bool = False) -> dict[str, int]:
        """Returns the bytes of each part that is there. again: list them again."""
        if self._parts is None or again:
            self._parts = dict(self.files.sizes("parts"))
        return self._parts

    def save(
        self, step: int, files: Iterable[tuple[str, Path]], run: str, score: dict[str, Any] | None,
        between: Callable[[], None] = lambda: None, before_manifest: Callable[[], None] = lambda: None,
    ) -> State:  # fmt: skip
        """Uploads a state: its parts that are not there yet, then the manifest.

        Args:
            files: (name in the state, local file).
            between: called before each part; it may raise to give up.
            before_manifest: called when all parts are there; it may raise to give up.

        Raises:
            OSError: a local file cannot be read.
        """
        sent = {name: tuple(self._send(path, name, between)) for name, path in files}
        state = State(step, run, time.time(), score, sent)
        before_manifest()
        put(self.files, file_name(step), encode(state))
        return state

    def _send(self, path: Path, name: str, between: Callable[[], None]) -> Iterable[Part]:
        there = self.parts()
        size = GROWING_BYTES if name == METRICS else PART_BYTES
        with open_regular(path) as file:
            left = _whole_rows(file) if name == METRICS else os.fstat(file.fileno()).st_size
            while data := file.read(min(size, left)):
                left -= len(data)
                between()
                part = Part(hashlib.sha256(data).hexdigest(), len(data))
                if there.get(part.sha256) != part.bytes:
                    put(self.files, f"parts/{part.sha256}", data)
                    there[part.sha256] = part.bytes
                yield part

    def set_aside(self, after: int) -> list[int]:
        """Renames states of later steps than `after`, so that the newest is the one that the run continues from."""
        later = [step for step in self.steps() if step > after]
        for step in later:
            name = file_name(step)
            put(self.files, f"states/aside-step_{step:012d}-{time.time_ns()}.json", self.files.read(name))
            self.files.remove([name])
        return later

    def prune(self, keep: int) -> None:
        """Removes all states but the newest `keep` and the best by score, then the parts that no state has."""
        states = dict[int, State]()
        for step in self.steps():
            try:
                states[step] = self.state(step)
            except DamagedManifest:
                continue  # incomplete for ever: its parts go
        newest = sorted(states)[-max(keep, 1) :]
        best = highest_score([(state.score, step) for step, state in states.items()])
        kept = {*newest, *([] if best is None else [best])}
        gone = [step for step in self.steps() if step not in kept]
        if not gone:
            return
        self.files.remove([file_name(step) for step in gone])
        used = {part.sha256 for step in kept for part in states[step].parts()} | self._parts_aside()
        there = self.parts(again=True)
        for sha256 in [sha256 for sha256 in there if sha256 not in used]:
            self.files.remove([f"parts/{sha256}"])
            there.pop(sha256, None)

    def _parts_aside(self) -> set[str]:
        """Returns the parts of states that were put aside."""
        used = set[str]()
        for name in self.files.sizes("states"):
            if name.startswith("aside-"):
                try:
                    used |= {part.sha256 for part in decode(self.files.read(f"states/{name}")).parts()}
                except (DamagedManifest, NewerManifest):
                    continue
        return used


def _whole_rows(file: IO[bytes]) -> int:
    """Returns the bytes of a growing file up to the end of its last whole row, and goes back to its beginning."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(end - (1 << 16), 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        end = start + found + 1 if found >= 0 else start
        if found >= 0:
            break
    file.seek(0)
    return end
