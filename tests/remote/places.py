"""Remote storage for tests: in a folder or in memory, with faults."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from metta_fast.storage.remote.address import Address, parse
from metta_fast.storage.remote.files import Files, RemoteError
from metta_fast.storage.remote.open_files import open_files
from metta_fast.storage.remote.run_store import RunStore

RUN = "0123456789abcdef" * 2


class Fault(Exception):
    """Ends an upload as a kill would."""


class Faulty:
    """Files whose every request calls `before(method, name)` first, which may raise or wait."""

    def __init__(self, files: Files, before: Callable[[str, str], None]) -> None:
        self.files, self.before = files, before

    def write(self, name: str, data: bytes) -> None:
        self.before("write", name)
        self.files.write(name, data)

    def send(self, path: Path, name: str) -> None:
        self.before("send", name)
        self.files.send(path, name)

    def read(self, name: str) -> bytes:
        self.before("read", name)
        return self.files.read(name)

    def sizes(self, folder: str) -> Mapping[str, int]:
        self.before("sizes", folder)
        return self.files.sizes(folder)

    def folders(self) -> list[str]:
        self.before("folders", "")
        return self.files.folders()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.before("remove", name)
            self.files.remove([name])


class Switch:
    """A bucket that can be switched off, made slow, and counts requests."""

    def __init__(self) -> None:
        self.error: RemoteError | None = None
        self.seconds = 0.0
        self.names: list[str] = []

    def __call__(self, method: str, name: str) -> None:
        self.names.append(f"{method} {name}")
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error


def place(kind: str, folder: Path) -> Address:
    """An empty place for one run: kind is folder or memory."""
    return parse(str(folder / "bucket" / "job") if kind == "folder" else f"memory://{uuid.uuid4().hex}/job")


def store(
    kind: str, folder: Path, before: Callable[[str, str], None] = lambda method, name: None
) -> RunStore:
    """A store in an empty place."""
    address = place(kind, folder)
    return RunStore(Faulty(open_files(address), before), address)


def checkpoint_folder(folder: Path, step: int, content: bytes, score: float | None = None) -> Path:
    """A folder with the files of a checkpoint, as far as uploads read them."""
    path = folder / f"step_{step:012d}"
    path.mkdir(parents=True)
    given = None if score is None else {"name": "env/return", "value": score}
    (path / "algorithm.pt").write_bytes(content)
    (path / "meta.json").write_text(json.dumps({"step": step, "score": given}))
    (path / "manifest.json").write_text(json.dumps({"files": {"algorithm.pt": {}, "meta.json": {}}}))
    return path


def files_of(path: Path) -> list[tuple[str, Path]]:
    """(name, file) of everything in a folder."""
    return [(file.name, file) for file in sorted(path.iterdir())]
