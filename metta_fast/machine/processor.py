"""Checks that this processor can run the compiled modules, before one of them is imported.

An instruction that the processor lacks ends the process by SIGILL, without a message. setup.py writes what the modules
were built for; `import metta_fast`, which comes before each of its modules, compares that with the processor.

    built_for.txt:  x86-64-v3                        value of -march
                    avx avx2 bmi1 bmi2 fma …         what code built with it uses, by Linux's names
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from metta_fast.contracts.errors import UserError

BUILT_FOR = Path(__file__).with_name("built_for.txt")
CPUINFO = Path("/proc/cpuinfo")
HEAD = 8192
"""Bytes of cpuinfo that hold the first processor; the whole file grows with the number of cores."""
SYSCTL = ("sysctl", "-n", "machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
OF_MACOS = {"avx1_0": "avx", "lzcnt": "abm"}
"""macOS's name of a feature → Linux's, where they differ by more than case and dots."""


def check_processor() -> None:
    """Raises UserError if the compiled modules use instructions that this processor lacks.

    Does nothing where it cannot be known: modules built for any processor, a system that does not list the features.
    """
    try:
        arch, _, names = BUILT_FOR.read_text().partition("\n")
    except OSError:
        return  # not built
    found = features() if names.strip() else set()
    missing = sorted(set(names.split()) - found)
    if found and missing:
        raise UserError(
            f"the compiled modules of metta_fast were built for {arch}, but this processor lacks "
            f"{', '.join(missing)}. Build them for this processor: {_build()} "
            "(MF_ARCH=x86-64-v2 gives modules for most processors since 2009, MF_ARCH=x86-64 for all)"
        )


def _build() -> str:
    """Returns the command that builds for this processor; `metta-fast build` could not be imported."""
    from metta_fast.machine.installation import ROOT, install_packages, is_checkout

    if is_checkout():
        return f"MF_ARCH=native {shlex.quote(str(ROOT / 'run_ultra_fast.sh'))} --setup-only"
    return f"MF_ARCH=native {install_packages('--no-deps', '--force-reinstall', 'FOLDER')}, FOLDER being its source"


def features() -> set[str]:
    """Returns the names of the processor's instruction sets, as Linux names them; empty: unknown."""
    if sys.platform == "darwin":
        import subprocess

        try:
            text = subprocess.run(SYSCTL, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return set()
        return {OF_MACOS.get(name, name) for name in text.lower().replace(".", "_").split()}
    try:
        with CPUINFO.open() as file:
            line = re.search(r"^flags\s*:(.*)\n", file.read(HEAD), re.MULTILINE)
    except OSError:
        return set()
    return set(line[1].split()) if line else set()
