"""`metta-fast build [NAME|all|FOLDER]`: compiles the native extensions of a checkout, or an environment in C.

    metta-fast build             # all of them; what has not changed is not compiled again
    metta-fast build arm         # the robots' extension, with the rules in envs/robot/tasks/arm.h
    metta-fast build grid        # the extension metta_fast.envs.grid._grid
    metta-fast build ./walk      # your own environment in C (new-env), ahead of its first use; `build snake`: a game

Extensions are built by setup.py, whose whole output is kept in build/build.log. An environment in C needs a compiler
only, also with an installed copy.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from metta_fast.config.keys import did_you_mean
from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.machine import compiler
from metta_fast.machine.installation import ROOT, install_extra, install_packages, is_checkout
from metta_fast.machine.process_group import end_group

ROBOTS = "metta_fast.envs.robot._robot,metta_fast.envs.robot.warp._rules"
"""Extensions that every robot's header is part of: for the CPU, and for the host's side of the GPU."""
FAULT = re.compile(r"^(?:error: .*|\S+:\d+:(?:\d+:)? (?!warning|note).*)$", re.MULTILINE)
"""The line of setup.py, Cython or a C compiler that names what is wrong."""


def extension_names(root: Path) -> dict[str, str]:
    """Returns the names that `build` takes and the extension that each stands for.

    Args:
        root: folder of the checkout.
    """
    found: dict[str, str] = {}
    for package, top in (("metta_fast.envs", root / "envs"), ("metta_fast", root / "metta_fast")):
        for source in sorted(top.rglob("*.pyx")):
            parts = source.relative_to(top).with_suffix("").parts
            if package == "metta_fast.envs" or parts[0] != "envs":
                name = ".".join((package, *parts))
                built = ROBOTS if name in ROBOTS.split(",") else name
                found |= {name: built, parts[-1]: built, parts[-1].strip("_"): built}
    for header in (root / "envs/robot/tasks").glob("*.h"):
        if re.search(rf"\}}\s*{header.stem}_params\s*;", header.read_text()):
            found[header.stem] = ROBOTS
    return found


def check_build(root: Path, robots: bool) -> None:
    """Raises UserError if nothing can be built here.

    Args:
        robots: whether robots are to be built, which need MuJoCo.
    """
    obstacle = compiler.interpreter_obstacle() or compiler.build_obstacle()
    if obstacle:
        raise UserError(obstacle)
    if compiler.find_compiler() is None:
        raise UserError(
            f"no C compiler was found; type: {compiler.install_compiler()}, or {install_packages('ziglang')}"
        )
    needs = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    modules = {"setuptools": "setuptools", "cython": "Cython", "numpy": "numpy"}
    missing = [
        need
        for need in needs
        for package, module in modules.items()
        if need.startswith(package) and importlib.util.find_spec(module) is None
    ]
    if missing:
        raise UserError(
            f"the build needs packages that are not installed; type: {install_packages(*missing)}"
        )
    if robots and importlib.util.find_spec("mujoco") is None:
        raise UserError(
            f"robots are built with MuJoCo, which is not installed; type: {install_extra('robots')}"
        )


def build(only: str | None = None, root: Path = ROOT) -> list[str]:
    """Compiles one extension or all, in place.

    Args:
        only: its full name, or several separated by commas; None: all.

    Returns:
        What setup.py printed about it: what was compiled, and what cannot be built here.

    Raises:
        UserError: something is missing, the folder cannot be written, or a source has a fault.
    """
    check_build(root, only == ROBOTS)
    log = root / "build/build.log"
    try:
        log.parent.mkdir(exist_ok=True)
        output = log.open("wb")
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename}: {error.strerror}; build in a copy of {root}"
        ) from error
    environment = os.environ | ({"MF_ONLY": only} if only else {})
    words = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", f"-j{os.cpu_count() or 1}"]
    with output:
        process = subprocess.Popen(
            words, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _wait(process, only.partition(",")[0].rpartition(".")[2] if only else "the extensions")
        finally:
            code = end_group(process, patience_s=0)
    text = log.read_text(errors="replace")
    if code:
        faults = FAULT.findall(text)
        first = (
            faults[0].removeprefix("error: ") if faults else (text.strip().splitlines() or ["no output"])[-1]
        )
        raise UserError(f"{first} (the compiler's whole output: {log})")
    return [
        line
        for line in text.splitlines()
        if line.startswith(("compiled ", "took ", "envs/robot is not built"))
    ]


def _wait(process: subprocess.Popen[bytes], what: str) -> None:
    """Waits for a build; a terminal shows the seconds since its start."""
    began, shown = time.monotonic(), sys.stderr.isatty()
    while True:
        try:
            process.wait(timeout=1.0)
            break
        except subprocess.TimeoutExpired:
            if shown:
                print(
                    f"\r\033[Kbuilding {what} … {time.monotonic() - began:.0f} s",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def run_build_command(words: Sequence[str], of_folder: Callable[[str], Path | None]) -> int:
    """Runs `metta-fast build` and returns 0.

    Args:
        of_folder: compiles the environment in C that a name means, and returns the library; None: it means none.

    Raises:
        UserError: see `build`; the package is an installed copy; there is no such extension.
    """
    name = parser().parse_args(list(words)).name
    known = extension_names(ROOT) if is_checkout() else {}
    began = time.monotonic()
    library = None if name in ("all", *known) else of_folder(name)
    if library is not None:
        print(f"{library} ({time.monotonic() - began:.1f} s)")
        return 0
    if not is_checkout():
        raise UserError(
            f"{ROOT} is an installed copy, whose extensions are compiled already; build works in a checkout (a clone "
            "of metta_fast), or with the folder of an environment in C"
        )
    if name != "all" and name not in known:
        short = sorted({key for key in known if "." not in key and not key.startswith("_")})
        raise UserError(
            f"unknown extension {name!r}; {did_you_mean(name, ['all', *short])}known: all, {', '.join(short)}"
        )
    lines = build(None if name == "all" else known[name])
    print("\n".join(lines) or "nothing has changed since it was compiled")
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    made = OptionParser(
        prog="metta-fast build",
        description="Compile the native extensions of a checkout, or an environment in C; what has not changed is not "
        "compiled again.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default="all",
        help="a robot, an extension, or the folder of an environment in C (default: all extensions)",
    )
    return made
