"""Runs each program of this folder in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = (
    "load 1000", "load 1000000", "load 50000000", "restart", "uaf", "drop alone", "drop cycle", "collected ready",
    "collected own", "collected board", "collected robot", "alias serial", "alias threads", "alias workers",
    "odd_values", "signal_in_evaluation", "lock", "threads", "descriptors", "normalized",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it(case: str) -> None:
    if case == "collected robot" and importlib.util.find_spec("mujoco") is None:
        pytest.skip("needs MuJoCo")
    ran = subprocess.run(
        [sys.executable, "-m", *f"tests.cases.{case}".split()],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
