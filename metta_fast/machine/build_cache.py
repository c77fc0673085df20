"""Keeps compiled extensions by a digest of all that they are made from, so that nothing is compiled twice.

    key = digest(["gcc 12.2.0", "-O3"], files)      # files: the sources and every header that they include
    data = read(place, key)                         # None: not built before
    write(place, key, data)

The usual folder is `extensions` in METTA_FAST_CACHE, else in XDG_CACHE_HOME/metta_fast or ~/.cache/metta_fast; the
clones of one user share it. Used by setup.py, which loads this file by its path: it imports the standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

LIMIT = 128
"""Files kept; the ones used longest ago are deleted first. An extension has some hundred KiB."""
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"|^\s*cdef extern from\s+"([^"<]+)"', re.MULTILINE)
CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+cimport\s+\(?([\w, \n]*)|cimport\s+([\w.]+))", re.MULTILINE)


def folder(fallback: Path) -> Path:
    """Returns the folder of the cache, which exists then; `fallback` where the usual one cannot be written."""
    own, shared = os.environ.get("METTA_FAST_CACHE"), os.environ.get("XDG_CACHE_HOME")
    base = Path(own) if own else Path(shared or "~/.cache") / "metta_fast"
    usual = Path(os.path.expanduser(base)) / "extensions"
    try:
        usual.mkdir(parents=True, exist_ok=True)
        if os.access(usual, os.W_OK):
            return usual
    except OSError:
        pass
    return fallback


def digest(words: Iterable[str], files: Iterable[Path], root: Path) -> str:
    """Returns the key of what is built from `words` (versions, flags) and `files`, named relative to `root`."""
    found = hashlib.sha256(repr(list(words)).encode())
    for file in sorted(files):
        found.update(repr((file.relative_to(root).as_posix(), file.read_bytes())).encode())
    return found.hexdigest()[:40]


def read(place: Path, key: str) -> bytes | None:
    """Returns what was written under `key` in folder `place`; None: nothing, or a damaged file."""
    path = place / key
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def write(place: Path, key: str, data: bytes) -> None:
    """Keeps `data` under `key` in folder `place`, and deletes files beyond LIMIT. Does nothing on a full disk."""
    part = None
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=place, prefix=".part-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.replace(part, place / key)
        kept = sorted((f for f in place.iterdir() if f.name[0] != "."), key=lambda f: f.stat().st_mtime)
        for old in kept[:-LIMIT]:
            old.unlink(missing_ok=True)
    except OSError:
        if part is not None:
            Path(part).unlink(missing_ok=True)


def sources(first: Path, include: Iterable[Path], packages: dict[str, Path]) -> set[Path]:
    """Returns a source and every file that it includes or cimports, directly or through another, below `packages`.

    Args:
        first: a .pyx, .c or .h file.
        include: folders in which the compiler looks for headers, beside the including file's own.
        packages: package → its folder, such as {"metta_fast.envs": …, "metta_fast": …}; the longest name first.
    """
    folders, found, rest = list(include), set(), [first]
    while rest:
        file = rest.pop()
        if file in found:
            continue
        found.add(file)
        text = file.read_text()
        for names in INCLUDE.findall(text):
            places = [(place / (names[0] or names[1])).resolve() for place in (file.parent, *folders)]
            rest += [place for place in places if place.is_file()][:1]
        if file.suffix in (".pyx", ".pxd"):
            rest += [own for own in [file.with_suffix(".pxd")] if own.is_file()]
            for base, names, plain in CIMPORT.findall(text):
                below = [f"{base}.{name.strip().split(' ')[0]}" for name in names.split(",")] if base else []
                rest += [pxd for module in (base or plain, *below) for pxd in _declarations(module, packages)]
    return found


def _declarations(module: str, packages: dict[str, Path]) -> list[Path]:
    """Returns the .pxd file of a module of our packages; empty: it has none, or belongs to another package."""
    for package, place in packages.items():
        if module.startswith(package + "."):
            file = place.joinpath(*module[len(package) + 1 :].split(".")).with_suffix(".pxd")
            return [file] if file.is_file() else []
    return []
