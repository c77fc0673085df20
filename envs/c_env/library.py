"""Compiles a rules header into a shared library, kept in the cache, and loads it.

    path = compile_rules(folder / "snake.h", "snake", ["size"])       # seconds; the second time milliseconds
    library = load(path)

The key is a digest of the compiler, its flags and all sources, so that a changed header is compiled again. Flags in
CFLAGS are added, for example -fsanitize=undefined.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.machine import build_cache, compiler
from metta_fast.machine.installation import install_packages

NATIVE = Path(__file__).resolve().parents[1] / "native"
MEMBERS = ("num_agents", "max_steps", "limit_is_terminal")
"""Members of ENV_params that each environment has."""
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-fast-math",
    "-Werror=implicit-function-declaration",
)
TIMEOUT_S = 900.0
LIMIT = 64
"""Libraries kept; the ones used longest ago are deleted first."""
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
FAULT = re.compile(r"^.*?(?:error|undefined reference).*$", re.MULTILINE)


class Field(ctypes.Structure):
    """mf_field of library.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("pad", ctypes.c_int32),
    )


def compile_rules(header: Path, name: str, params: Sequence[str]) -> Path:
    """Compiles the rules of environment `name`, unless the cache has them.

    Args:
        params: members of ENV_params that Python writes, besides MEMBERS.

    Returns:
        The shared library.

    Raises:
        UserError: no compiler was found, or the header has a fault: the compiler's first line about it.
    """
    if not header.is_file():
        raise UserError(f"{header} does not exist: expected the rules of {name}, in C")
    found = compiler.find_compiler()
    if found is None:
        raise UserError(
            f"{header} cannot be compiled, for no C compiler was found; type: {compiler.install_compiler()}, or "
            f"{install_packages('ziglang')}"
        )
    members = "".join(f"MF_FIELD({member}), " for member in (*MEMBERS, *params))
    text = f'#include "{header.name}"\n#define MF_ENV {name}\n#include "library.h"\n'
    text += f"MF_EXPORT const mf_field mf_fields[] = {{{members}MF_END}};\n"
    more = shlex.split(os.environ.get("CFLAGS", ""))
    flags = (*FLAGS, *found.arch_flags(""), *(compiler.ZIG_FLAGS if found.zig else ()), *more)
    files = build_cache.sources(header, [NATIVE], {}) | build_cache.sources(NATIVE / "library.h", [], {})
    words = [text, found.version, *found.command, *flags]
    words += [f"{file.name} {file.read_text()}" for file in sorted(files)]
    place = build_cache.folder(header.parent / "build").parent / "environments"
    library = place / f"{name}-{build_cache.digest(words, [], place)}.so"
    if library.is_file():
        os.utime(library)
        return library
    _compile([*found.command, *flags, f"-I{header.parent}", f"-I{NATIVE}"], text, library, header)
    for old in sorted(place.glob("*.so"), key=lambda file: file.stat().st_mtime)[:-LIMIT]:
        old.unlink(missing_ok=True)
    return library


def _compile(words: list[str], text: str, library: Path, header: Path) -> None:
    """Compiles `text` to `library`, which appears when it is complete."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent, prefix=".build-") as folder:
            source, made = Path(folder, "library.c"), Path(folder, "library.so")
            source.write_text(text)
            done = subprocess.run(
                [*words, "-o", str(made), str(source)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode:
                log = library.with_suffix(".log")
                log.write_text(done.stderr + done.stdout)
                faults = FAULT.findall(done.stderr) or done.stderr.strip().splitlines() or ["no output"]
                raise UserError(
                    f"{header} does not compile: {faults[0].strip()} (the compiler's whole output: {log})"
                )
            made.replace(library)
    except subprocess.TimeoutExpired:
        raise UserError(f"{header}: the compiler has not ended after {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise UserError(
            f"cannot write the compiled {header.name} to {library.parent}: {error.strerror}; set METTA_FAST_CACHE to a "
            "folder that can be written"
        ) from error


def rules_digest(header: Path) -> str:
    """Returns a digest of a header and of what it includes from its folder, without comments and spaces."""
    own = [file for file in build_cache.sources(header, [], {}) if file.parent == header.parent]
    texts = [
        (file.name, " ".join(COMMENT.sub(" ", file.read_text(errors="replace")).split()))
        for file in sorted(own)
    ]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


@functools.cache
def load(path: Path) -> ctypes.CDLL:
    """Loads a library that `compile_rules` has made.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(
            f"the compiled environment {path} cannot be loaded ({error}); delete it and try again"
        ) from error
    for name in ("mf_params_size", "mf_batch_size"):
        getattr(found, name).restype = ctypes.c_int64
    for name in ("mf_prepare", "mf_sizes"):
        getattr(found, name).restype = None
    return found


def fields(library: ctypes.CDLL, count: int) -> dict[str, Field]:
    """Returns the members of ENV_params that Python writes."""
    array = (Field * count).in_dll(library, "mf_fields")
    return {field.name.decode(): field for field in array}


def addresses(library: ctypes.CDLL) -> dict[str, int]:
    """Returns the addresses of the functions that a batch calls."""
    names = ("mf_begin", "mf_reset", "mf_step")
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}
