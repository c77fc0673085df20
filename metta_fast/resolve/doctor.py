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
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metta_fast.config.option_parser import OptionParser
from metta_fast.machine import hardware
from metta_fast.machine.installation import install_packages
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
    good = (3, 11) <= sys.version_info[:2] <= (3, 12)
    yield Finding("python", f"{version} at {sys.executable}", "" if good else "use Python 3.11 or 3.12")
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0]) or shutil.which("gcc")
    yield Finding(
        "compiler",
        compiler or "no C compiler found",
        "" if compiler else "install one: apt install gcc, dnf install gcc, or xcode-select --install",
        needed=any(_unbuilt()),
    )
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    yield Finding(
        "packages",
        "all there" if not missing else "not installed: " + ", ".join(missing),
        install_packages(*missing) if missing else "",
    )
    unbuilt = sorted(_unbuilt())
    yield Finding(
        "extensions",
        "built" if not unbuilt else "not built or older than their source: " + ", ".join(unbuilt),
        "./run_ultra_fast.sh --setup-only, or python setup.py build_ext --inplace" if unbuilt else "",
    )
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
    print(f"{len(wrong)} problem(s) to fix before training" if wrong else "ready: ./run_ultra_fast.sh trains")
    return 1 if wrong else 0


def _unbuilt() -> Iterator[str]:
    """Yields native modules whose compiled file is missing or, in a checkout, older than its source."""
    checkout = (PACKAGE.parent / "setup.py").exists()  # file times of an installed wheel mean nothing
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
