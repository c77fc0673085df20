"""fmath.h beside Python's math."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.c_compiler import CC

NATIVE = Path(__file__).resolve().parents[2] / "envs/native"
CALLS = """
#include "fmath.h"
double mine_sin(double x) { return mf_sin(x); }
double mine_cos(double x) { return mf_cos(x); }
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    if not CC:
        pytest.skip("no C compiler here")
    source = tmp_path_factory.mktemp("fmath") / "calls.c"
    source.write_text(CALLS)
    made = source.with_suffix(".so")
    flags = ["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{NATIVE}"]
    subprocess.run([*CC, *flags, "-o", str(made), str(source)], check=True)
    library = ctypes.CDLL(str(made))
    for name in ("mine_sin", "mine_cos"):
        getattr(library, name).restype = ctypes.c_double
        getattr(library, name).argtypes = [ctypes.c_double]
    return library


@settings(deadline=None, max_examples=500)
@given(x=st.floats(-10_000, 10_000))
def test_sine_and_cosine(functions, x):
    assert abs(functions.mine_sin(x) - math.sin(x)) <= 4e-16
    assert abs(functions.mine_cos(x) - math.cos(x)) <= 4e-16


def test_known_values(functions):
    assert functions.mine_sin(0.0) == 0.0
    assert functions.mine_cos(0.0) == 1.0
    for k in range(-20, 21):
        assert abs(functions.mine_sin(k * math.pi / 4) - math.sin(k * math.pi / 4)) <= 4e-16
