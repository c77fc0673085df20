"""Reports this machine's hardware and its profile, and missing packages with the commands to install them.

    metta-fast doctor        # exit code 0: ready to train; 1: something needed is missing

It imports none of the packages that it checks, so that it runs on an incomplete installation.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metta_fast.config.option_parser import OptionParser
from metta_fast.machine import compiler, hardware
from metta_fast.machine.installation import command, install_extra, install_packages, is_checkout
from metta_fast.resolve import choose_profile as profiles
from metta_fast.resolve.env_on_gpu import card_obstacle
from metta_fast.runtime.nvrtc.compile import cache_folder

PACKAGE = Path(__file__).resolve().parents[1]
NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "hydra": "hydra-core",
    "yaml": "pyyaml",
    "omegaconf": "omegaconf",
    "rich": "rich",
    "tensorboard": "tensorboard",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
    "cloudpickle": "cloudpickle",
}
"""Import name → name on the package index."""
ROBOTS = "metta_fast.envs.robot._robot"
"""The only extension that training can do without."""


@dataclass(frozen=True)
class Finding:
    """Holds one line of the report."""

    topic: str
    text: str
    cure: str = ""
    """How to fix it; empty if nothing is wrong."""
    needed: bool = True
    """True: training is impossible without the fix."""

    def show(self) -> str:
        mark = "ok     " if not self.cure else "MISSING" if self.needed else "note   "
        return f"{mark} {self.topic:<11} {self.text}" + (f"\n{'':20}→ {self.cure}" if self.cure else "")


def examine() -> Iterator[Finding]:
    """Yields all findings, cheap ones first."""
    version = platform.python_version()
    yield Finding("python", f"{version} at {sys.executable}", compiler.interpreter_obstacle() or "")
    unbuilt = sorted(_unbuilt())
    yield _compiler(bool(unbuilt))
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    yield Finding(
        "packages",
        "all there" if not missing else "not installed: " + ", ".join(missing),
        install_packages(*missing) if missing else "",
    )
    robots = ROBOTS not in unbuilt
    unbuilt = [name for name in unbuilt if name != ROBOTS]
    again = command("build") if is_checkout() else "install metta_fast again, from its wheel or source"
    yield Finding(
        "extensions",
        "built" if not unbuilt else "not built or older than their source: " + ", ".join(unbuilt),
        again if unbuilt else "",
    )
    if not robots and (sys.platform, platform.machine()) == ("linux", "x86_64"):
        cure = f"{install_extra('robots')}, then {again}"
        yield Finding("robots", "not built, or older than their source", cure, needed=False)
    machine = hardware.detect()
    yield Finding("torch", _torch_text(machine.torch_build))
    for note in machine.notes:
        yield Finding("gpu", note, "https://pytorch.org/get-started has torch for each", needed=False)
    if machine.gpus:
        yield _engine(machine)
    yield Finding("machine", machine.describe())
    yield Finding("profile", profiles.choose_profile(machine).reason)


def parser() -> argparse.ArgumentParser:
    """Makes the parser of `metta-fast doctor`, which has no options but --help."""
    return OptionParser(
        prog="metta-fast doctor",
        description="List this machine's hardware, the profile that hardware=auto chooses, and whatever is missing, "
        "each with the command that fixes it. Exit code 0: ready to train; 1: something needed is missing.",
    )


def main(words: Sequence[str] = ()) -> int:
    """Prints the report. Returns 1 if something needed is missing.

    Raises:
        UserError: there are arguments.
    """
    parser().parse_args(list(words))
    findings = []
    for finding in examine():
        print(finding.show(), flush=True)
        findings.append(finding)
    wrong = [finding for finding in findings if finding.cure and finding.needed]
    print(f"{len(wrong)} problem(s) to fix before training" if wrong else f"ready: type {command('train')}")
    return 1 if wrong else 0


def _unbuilt() -> Iterator[str]:
    """Yields native modules whose compiled file is missing or, in a checkout, older than its source."""
    checkout = is_checkout()  # file times of an installed wheel mean nothing
    for top, package in ((PACKAGE / "envs", "metta_fast.envs"), (PACKAGE, "metta_fast")):
        root = top.resolve()
        for source in root.rglob("*.pyx"):
            parts = source.relative_to(root).with_suffix("").parts
            if top == PACKAGE and parts[0] == "envs":
                continue
            built = [
                file
                for ending in importlib.machinery.EXTENSION_SUFFIXES
                if (file := source.with_suffix(ending)).exists()
            ]
            if not built or (checkout and built[0].stat().st_mtime < source.stat().st_mtime):
                yield ".".join((package, *parts))


def _compiler(unbuilt: bool) -> Finding:
    """Returns whether extensions can be compiled here; only a checkout compiles them."""
    found = compiler.find_compiler()
    text = found.version if found else "no C compiler that works was found"
    if not is_checkout():
        return Finding("compiler", text if found else f"{text}; an installed copy needs none")
    obstacle = compiler.build_obstacle()
    if obstacle:
        return Finding("compiler", text, obstacle, needed=unbuilt)
    cure = f"{compiler.install_compiler()}, or {install_packages('ziglang')}"
    return Finding("compiler", text, "" if found else cure, needed=unbuilt)


def _engine(machine: hardware.Machine) -> Finding:
    """Returns whether environments with a GPU engine can step on the card."""
    missing = card_obstacle(machine)
    if missing:
        return Finding(
            "gpu engine", f"environments step on the CPU: {missing.why}", missing.cure, needed=False
        )
    driver = ".".join(map(str, machine.driver)) if machine.driver[0] else "unknown"
    folder = cache_folder()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return Finding(
        "gpu engine",
        f"NVRTC {machine.nvrtc}, a driver for CUDA {driver}, compiled kernels kept in {folder}",
        ""
        if os.access(place, os.W_OK)
        else f"make {place} writable, or name another folder with METTA_FAST_CACHE",
        needed=False,
    )


def _torch_text(build: str) -> str:
    from importlib import metadata

    if build == "none":
        return "not installed"
    return f"{metadata.version('torch')}, built for {build}"
