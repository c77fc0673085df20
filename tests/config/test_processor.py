"""Tests that a processor which lacks instructions of the compiled modules is named before one is imported."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import metta_fast
from metta_fast import UserError
from metta_fast.machine import processor

V3 = "x86-64-v3\nssse3 sse4_1 sse4_2 popcnt avx avx2 f16c fma movbe abm bmi1 bmi2\n"
IVY_BRIDGE = "fpu sse sse2 ht pni ssse3 cx16 sse4_1 sse4_2 popcnt aes xsave avx f16c rdrand"
HASWELL = IVY_BRIDGE + " fma movbe abm bmi1 avx2 bmi2"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Gives a function that makes a machine: (content of built_for.txt, flags of /proc/cpuinfo)."""

    def make(built_for: str | None, flags: str | None) -> None:
        monkeypatch.setattr(processor, "BUILT_FOR", tmp_path / "built_for.txt")
        monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(sys, "platform", "linux")
        if built_for is not None:
            processor.BUILT_FOR.write_text(built_for)
        if flags is not None:
            one = f"processor\t: 0\nmodel name\t: a CPU\nflags\t\t: {flags}\nvmx flags\t: ept\nbugs\t\t:\n\n"
            processor.CPUINFO.write_text(one * 256)

    return make


def test_a_processor_without_the_instructions_is_named_with_the_cure(machine):
    machine(V3, IVY_BRIDGE)
    with pytest.raises(
        UserError, match=r"built for x86-64-v3.* lacks abm, avx2, bmi1, bmi2, fma, movbe\. .*MF_ARCH=native"
    ):
        processor.check_processor()


def test_importing_the_package_checks_the_processor(machine):
    machine(V3, IVY_BRIDGE)
    with pytest.raises(UserError, match="this processor lacks"):
        importlib.reload(metta_fast)


@pytest.mark.parametrize(
    ("built_for", "flags"),
    [
        (V3, HASWELL),
        ("x86-64-v2\nssse3 sse4_1 sse4_2 popcnt\n", IVY_BRIDGE),
        ("any processor\n\n", IVY_BRIDGE),
        (None, IVY_BRIDGE),  # not built
        (V3, None),  # a system without cpuinfo
    ],
)
def test_a_processor_with_the_instructions_or_unknown_passes(machine, built_for, flags):
    machine(built_for, flags)
    processor.check_processor()


def test_macos_names_of_instructions(machine, monkeypatch):
    machine(V3, None)
    monkeypatch.setattr(sys, "platform", "darwin")
    features = "SSE4.1 SSE4.2 SSSE3 POPCNT FMA MOVBE F16C AVX1.0"
    for leaf7, missing in (("BMI1 AVX2 BMI2", ""), ("BMI1", "lacks avx2, bmi2")):
        script = f"print('{features}'); print('{leaf7}'); print('SYSCALL LZCNT')"
        monkeypatch.setattr(processor, "SYSCTL", (sys.executable, "-c", script))
        if not missing:
            processor.check_processor()
        else:
            with pytest.raises(UserError, match=missing):
                processor.check_processor()


def test_setup_writes_what_the_modules_use_and_this_processor_has_it():
    arch, names = processor.BUILT_FOR.read_text().splitlines()
    assert set(names.split()) <= processor.features()
    if arch == "x86-64-v3":
        assert set(names.split()) == set(V3.split()[1:])


def test_importing_the_package_imports_no_compiled_module():
    code = "import metta_fast, sys; print([m for m in sys.modules if m.startswith('metta_fast.envs')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
