"""Compiles C++ source to machine code with NVRTC, with a cache on disk.

    code = compile_source(Source("grid", text, include=(folder,), options=("-DX=1",)), arch=90)

Place in the flow: an environment's rules header + gpu_shell.h → compile → launch.py loads it. No GPU is needed.
runtime/kernel_caches.py says where the cache is. A file's name contains the SHA-256 of all inputs of the compilation; a
damaged file is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.gpu_program import Source
from metta_fast.machine.installation import install_extra
from metta_fast.runtime import kernel_caches

OPTIONS = (
    "--std=c++17",
    "--fmad=false",  # like -ffp-contract=off on the CPU, for the same bits
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
)


_LOCK = threading.Lock()
"""Lets one thread compile at a time; another with the same source (run/early_start.py) then finds it in the cache."""


class CompileError(UserError):
    """A source does not compile (the message shows the line), or NVRTC is not usable."""


def compile_source(source: Source, arch: int) -> bytes:
    """Compiles to machine code (cubin) for compute capability `arch` (90: sm_90).

    If NVRTC does not support this GPU yet, the result is PTX; the driver loads either.

    Raises:
        CompileError: the source does not compile, or NVRTC is not usable.
        UserError: the cache folder cannot be written.
    """
    version, target, kind = _target(arch)
    options = (f"--gpu-architecture={kind}_{target}", *OPTIONS, *source.options)
    path = (
        cache_folder()
        / f"{source.name}-{_key(source, options, version)}.{'cubin' if kind == 'sm' else 'ptx'}"
    )
    with _LOCK:
        found = _read(path)
        if found is None:
            found = _compile(source, options, binary=kind == "sm", log=path.with_suffix(".log"))
            _write(path, found)
    return found


def cache_folder() -> Path:
    """Returns the folder of the cache, without creating it."""
    return kernel_caches.base() / kernel_caches.OURS


def _key(source: Source, options: tuple[str, ...], version: tuple[int, int]) -> str:
    digest = hashlib.sha256(repr((version, options, source.text)).encode())
    for folder in source.include:
        for header in sorted(folder.glob("*.h")):
            digest.update(repr((header.name, header.read_bytes())).encode())
    return digest.hexdigest()[:32]


# ---- the cache: each file holds the digest of the code, then the code ----


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = data[32:]
    return code if code and hashlib.sha256(code).digest() == data[:32] else None


def _write(path: Path, code: bytes) -> None:
    """Writes a temporary file and renames it, so that several processes may write at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.chmod(beside, 0o644)  # a folder may be shared
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise _unwritable(path.parent, error) from error


# ---- NVRTC ----


def _target(arch: int) -> tuple[tuple[int, int], int, str]:
    """Returns NVRTC's version, the architecture to compile for, and "sm" (machine code) or "compute" (PTX)."""
    nvrtc = _nvrtc()
    try:
        version = _ok(nvrtc.nvrtcVersion())
        known = list(_ok(nvrtc.nvrtcGetSupportedArchs())[0])
    except RuntimeError as error:  # the bindings are installed, the library is not
        raise CompileError(f"NVRTC cannot be used: {error}; {_cure()}") from error
    if arch in known:
        return (version[0], version[1]), arch, "sm"
    below = [a for a in known if a < arch]
    if not below:
        raise CompileError(
            f"this GPU has compute capability {arch // 10}.{arch % 10}, but NVRTC {version[0]}.{version[1]} supports "
            f"{known[0] // 10}.{known[0] % 10} and newer: use env.device=cpu"
        )
    return (version[0], version[1]), max(below), "compute"


def _cure() -> str:
    return f"install it with: {install_extra('gpu')}"


def _nvrtc():  # type: ignore[no-untyped-def]  # the module cuda.bindings.nvrtc
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompileError(
            f"environments on the GPU need cuda-bindings and NVRTC ({error}); {_cure()}"
        ) from error
    return nvrtc


def _ok(result: tuple) -> tuple:
    """Returns the values after NVRTC's result code. Raises CompileError if the code is an error."""
    if result[0] != 0:
        raise CompileError(f"NVRTC reports {result[0].name}")
    return result[1:]


def _compile(source: Source, options: tuple[str, ...], binary: bool, log: Path) -> bytes:
    """Returns the machine code. Raises CompileError, and writes NVRTC's output to `log`, if there is a fault."""
    nvrtc = _nvrtc()
    include = tuple(f"-I{folder}" for folder in source.include)
    given = [option.encode() for option in (*options, *include)]
    (program,) = _ok(nvrtc.nvrtcCreateProgram(source.text.encode(), f"{source.name}.cu".encode(), 0, [], []))
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        if result != 0:
            (size,) = _ok(nvrtc.nvrtcGetProgramLogSize(program))
            said = bytearray(size)
            _ok(nvrtc.nvrtcGetProgramLog(program, said))
            text = bytes(said).rstrip(b"\0").decode(errors="replace").strip()
            _keep(log, text)
            more = f"; {source.cure}" if source.cure else ""
            raise CompileError(
                f"{source.name} does not compile for the GPU: {_first(source, text) or result.name}{more} "
                f"(NVRTC's whole output: {log})"
            )
        size_of, get = (
            (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            if binary
            else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        )
        (size,) = _ok(size_of(program))
        code = bytearray(size)
        _ok(get(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


_ERROR = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error\b.*$", re.MULTILINE)


def _first(source: Source, log: str) -> str:
    """Returns the first error and its line of source, in one line."""
    found = _ERROR.search(log)
    if not found:
        return log.partition("\n")[0]
    file, number = found["file"], int(found["line"])
    text = source.text if file == f"{source.name}.cu" else Path(file).read_text(encoding="utf-8")
    lines = text.splitlines()
    shown = f" in '{lines[number - 1].strip()}'" if 0 < number <= len(lines) else ""
    return " ".join(found[0].split()) + shown


def _keep(log: Path, text: str) -> None:
    """Writes NVRTC's output, for the user to read. Raises UserError if the folder cannot be written."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text + "\n")
    except OSError as error:
        raise _unwritable(log.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write the cache of compiled kernels, {folder} ({error.strerror}); make it writable, or choose another "
        "folder with METTA_FAST_CACHE"
    )
