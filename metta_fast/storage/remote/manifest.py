"""Writes and reads the manifest of a state in remote storage: its files, cut into parts that are named by checksum.

    {"schema": 1, "step": …, "run": …, "time": …, "score": …,
     "files": {name: {"bytes": …, "parts": [[sha256, bytes], …]}}}       (on one line)
    sha256 of the line above

A manifest is written after all of its parts, so that one that can be read is of a complete state. Its second line
tells a cut or altered one.

Place in the flow: run_store.py writes and reads states by it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SCHEMA = 1
_HASH = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_RUN = re.compile(r"[0-9a-f]{32}")
_MOST = 1 << 62


class DamagedManifest(Exception):
    """A manifest was cut or altered."""


class NewerManifest(Exception):
    """A newer version of metta_fast wrote the manifest."""


@dataclass(frozen=True)
class Part:
    """A piece of a file."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class State:
    """A state in remote storage."""

    step: int
    run: str
    """The run's digits (storage/run_identity.py)."""
    time: float
    """When it was uploaded, in seconds since 1970."""
    score: dict[str, Any] | None
    """As in meta.json."""
    files: dict[str, tuple[Part, ...]]

    def parts(self) -> Iterator[Part]:
        """Yields the parts of all files."""
        for parts in self.files.values():
            yield from parts

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts())


def encode(state: State) -> bytes:
    """Returns the manifest of a state."""
    files = {
        name: {"bytes": sum(p.bytes for p in parts), "parts": [[p.sha256, p.bytes] for p in parts]}
        for name, parts in state.files.items()
    }
    body = {"schema": SCHEMA, "step": state.step, "run": state.run, "time": state.time, "score": state.score}
    line = json.dumps(body | {"files": files}).encode()
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def decode(data: bytes) -> State:
    """Reads a manifest.

    Raises:
        DamagedManifest: it was cut or altered, or is not one.
        NewerManifest: its schema is newer than ours.
    """
    line, _, rest = data.partition(b"\n")
    if rest != hashlib.sha256(line).hexdigest().encode() + b"\n":
        raise DamagedManifest("its checksum does not match (cut short or altered)")
    try:
        found = json.loads(line)
        if _count(found["schema"]) > SCHEMA:
            raise NewerManifest(f"schema {found['schema']}, but this version reads up to {SCHEMA}")
        files = {_text(name, _NAME): _parts(entry) for name, entry in found["files"].items()}
        score = found["score"]
        if score is not None:
            score = {"name": str(score["name"]), "value": float(score["value"])}
        when = float(found["time"])
        if not math.isfinite(when):
            raise ValueError("time")
        return State(_count(found["step"]), _text(found["run"], _RUN), when, score, files)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedManifest(f"it has the right checksum and the wrong content ({error})") from error


def _parts(entry: Any) -> tuple[Part, ...]:
    parts = tuple(Part(_text(sha256, _HASH), _count(size)) for sha256, size in entry["parts"])
    if sum(part.bytes for part in parts) != _count(entry["bytes"]):
        raise ValueError("bytes")
    return parts


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(value)
    return value


def _text(value: Any, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(value)
    return value
