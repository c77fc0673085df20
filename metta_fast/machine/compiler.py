"""Finds a C compiler that works, and names what a build lacks with the command that installs it.

    python -I metta_fast/machine/compiler.py      # what ./run_ultra_fast.sh asks before it downloads anything:
                                                  # exit code 0: a build can start; 3: it needs a compiler, and ziglang
                                                  # (a C compiler in a Python package) would do; 2: it cannot start

Used by setup.py, which loads this file by its path, and by `metta-fast build` and `doctor`. It imports the standard
library only, and works with every Python from 3.9 on, to name one that is too old.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 14)
"""The versions of Python that metta_fast supports; pyproject.toml and run_ultra_fast.sh have the same."""
ZIG_FLAGS = ("-fno-sanitize=undefined", "-fwrapv", "-DNDEBUG")
"""zig cc traps undefined behaviour unless told otherwise, and does not get the flags that Python was built with."""
TRIAL = "#include <stdlib.h>\nint mf_trial(void) { return abs(-1); }\n"
TIMEOUT_S = 900.0
"""Seconds for the trial: at the first one zig builds parts of its C library, which takes minutes on a busy machine."""


@dataclass(frozen=True)
class Compiler:
    """Holds a C compiler that has compiled and linked a library."""

    command: tuple[str, ...]
    """Its words: ("cc",), ("ccache", "gcc"), (python, "-m", "ziglang", "cc")."""
    version: str
    """The first line of --version."""
    zig: bool = False

    def arch_flags(self, arch: str) -> list[str]:
        """Returns the flags for a processor, in this compiler's spelling.

        Args:
            arch: as gcc's -march names it (x86-64-v3, native, …); "" for any processor.
        """
        if self.zig:
            return [f"-mcpu={arch.replace('-', '_') if arch else 'baseline'}"]
        return [f"-march={arch}"] if arch else []

    def macros(self, arch: str) -> str | None:
        """Returns the macros that are defined for a processor, as lines of C; None: it does not know `arch`."""
        words = [*self.command, *self.arch_flags(arch), "-dM", "-E", "-x", "c", os.devnull]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
        return None if done.returncode else done.stdout


def find_compiler() -> Compiler | None:
    """Returns the compiler that builds use: $CC; else Python's own, cc, gcc, clang or ziglang, the first that works.

    Returns:
        None if none works, also if $CC does not.
    """
    return _find(os.environ.get("CC", ""))


@functools.cache
def _find(typed: str) -> Compiler | None:
    if typed:
        found = _try(tuple(shlex.split(typed)))
        return found or _try_ziglang(typed)
    own = str(sysconfig.get_config_var("CC") or "")
    for words in (own, "cc", "gcc", "clang"):
        found = _try(tuple(shlex.split(words))) if words else None
        if found:
            return found
    return _try_ziglang("")


def _try_ziglang(typed: str) -> Compiler | None:
    """Returns zig cc, from the package ziglang of this interpreter; None where $CC names another compiler."""
    if typed or importlib.util.find_spec("ziglang") is None:
        return None
    if not os.access(os.path.expanduser("~"), os.W_OK):  # zig keeps its C library's parts there
        cache = os.path.join(tempfile.gettempdir(), f"zig-{os.getuid()}")
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", cache)
    return _try((sys.executable, "-m", "ziglang", "cc"))


def _try(command: tuple[str, ...]) -> Compiler | None:
    """Compiles and links a small library: a compiler may be there without the C library's files."""
    if not command or shutil.which(command[0]) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "trial.c")
        source.write_text(TRIAL)
        words = [*command, "-shared", "-fPIC", "-o", str(source.with_suffix(".so")), str(source)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S)
            told = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            return None
    if done.returncode:
        return None
    zig = "ziglang" in command or Path(command[0]).name == "zig"
    return Compiler(command, told.stdout.partition("\n")[0].strip(), zig)


def provide_compiler(folder: Path) -> None:
    """Sets CC for packages that look for gcc or clang themselves (Triton), where ziglang is the only compiler.

    Args:
        folder: where a program is written that runs zig cc.
    """
    if "CC" in os.environ or shutil.which("gcc") or shutil.which("clang"):
        return
    found = find_compiler()
    if found is None:
        return
    program = folder / "zig-cc"
    words = shlex.join([*found.command, *(ZIG_FLAGS if found.zig else ())])
    text = f'#!/bin/sh\nexec {words} "$@"\n'
    if not program.is_file() or program.read_text() != text:
        folder.mkdir(parents=True, exist_ok=True)
        part = program.with_name(f".zig-cc-{os.getpid()}")
        part.write_text(text)
        part.chmod(0o755)
        part.replace(program)
    os.environ["CC"] = str(program)


def has_headers() -> bool:
    """Whether this interpreter's headers, which extensions include, are installed."""
    return any(Path(sysconfig.get_path(key), "Python.h").is_file() for key in ("include", "platinclude"))


def install_compiler() -> str:
    """Returns the command that installs a C compiler on this system."""
    return _install(apt="build-essential", dnf="gcc", pacman="base-devel", zypper="gcc", brew="")


def install_headers() -> str:
    """Returns the command that installs this interpreter's headers on this system."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    dnf = (
        "python3-devel"
        if Path("/usr/bin/python3").resolve().name == f"python{version}"
        else f"python{version}-devel"
    )
    suse = f"python{version.replace('.', '')}-devel"
    return _install(
        apt=f"python{version}-dev", dnf=dnf, pacman="python", zypper=suse, brew=f"python@{version}"
    )


def _install(apt: str, dnf: str, pacman: str, zypper: str, brew: str) -> str:
    """Returns the command of this system's package manager; several where it is not known."""
    if sys.platform == "darwin":
        return f"brew install {brew}" if brew else "xcode-select --install"
    commands = {
        "apt-get": f"apt-get install {apt}",
        "dnf": f"dnf install {dnf}",
        "pacman": f"pacman -S {pacman}",
        "zypper": f"zypper install {zypper}",
    }
    root = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
    found = [root + command for tool, command in commands.items() if shutil.which(tool)]
    return found[0] if found else ", ".join(commands.values())


def interpreter_obstacle() -> str | None:
    """Returns why this interpreter cannot be used, or None."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        least, most = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        return f"Python {platform.python_version()} is not supported: use Python {least} to {most}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the free-threaded build of Python is not supported: use the usual build, with the GIL"
    return None


def build_obstacle() -> str | None:
    """Returns why no extension can be built here, whatever is installed with pip; or None."""
    if not has_headers():
        return (
            f"the headers of Python {platform.python_version()} ({sys.executable}) are not installed; "
            f"type: {install_headers()}"
        )
    typed = os.environ.get("CC")
    if typed and find_compiler() is None:
        return (
            f"CC={typed} does not compile a library here; correct it, or unset CC to use another compiler "
            f"(to install one: {install_compiler()})"
        )
    return None


def main() -> int:
    """Prints what keeps a build from starting; returns the exit code above."""
    obstacle = interpreter_obstacle() or build_obstacle()
    if obstacle:
        print(f"error: {obstacle}", file=sys.stderr)
        return 2
    return 0 if find_compiler() else 3


if __name__ == "__main__":
    sys.exit(main())
