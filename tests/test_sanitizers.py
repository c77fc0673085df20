"""Tests that .ci/sanitize finds errors, with two planted in a copy's advantage kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOOP = "    for (ptrdiff_t n = 0; n < agents; n++) {\n"
PLANTED = """
    static volatile int32_t table[4];
    if (gamma == 2.0f)
        advantage[agents] = 0.0f; /* of the last row: beyond the array */
    if (gamma == 3.0f)
        table[agents & 7] = 1;
"""
GAME = """
import sys
import numpy as np
import pytest
from metta_fast.algorithms.ppo.advantage._kernel import advantage_cpu
from metta_fast.algorithms.ppo.advantage.inputs import Inputs

@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
def test_it(gamma):
    agents = 1007
    row, bits = np.zeros((1, agents), np.float32), np.zeros((3, 1, agents), np.bool_)
    value = np.zeros((2, agents), np.float32)
    advantage_cpu(Inputs(value, row, *bits, gamma=gamma, gae_lambda=1.0), row.copy(), row.copy())
    sys.stdout.write(f"gamma {gamma} passed\\n")
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """As much of the tree as this extension needs, built in some seconds, and the game that reaches the faults."""
    root = tmp_path_factory.mktemp("planted")
    package = root / "metta_fast/algorithms/ppo/advantage"
    shutil.copytree(ROOT / ".ci", root / ".ci")
    shutil.copytree(ROOT / "envs/robot/tasks", root / "envs/robot/tasks")  # setup.py lists them
    package.mkdir(parents=True)
    for folder in ("machine", "contracts"):  # what importing the package needs; setup.py writes built_for.txt
        shutil.copytree(ROOT / "metta_fast" / folder, root / "metta_fast" / folder)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "metta_fast/__init__.py"):
        shutil.copy(ROOT / file, root / file)
    for file in ("advantage.h", "_kernel.pyx", "inputs.py"):
        shutil.copy(ROOT / "metta_fast/algorithms/ppo/advantage" / file, package)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    header = package / "advantage.h"
    before, after = header.read_text().split(LOOP)
    header.write_text(before + PLANTED + LOOP + after)
    (root / "tests").mkdir()
    (root / "tests/test_game.py").write_text(GAME)
    return root


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc's sanitizers")
@pytest.mark.parametrize(
    ("gamma", "said"),
    [
        ("1.0", ()),
        ("2.0", ("AddressSanitizer: heap-buffer-overflow", "advantage.h")),
        ("3.0", ("runtime error: index 7 out of bounds", "advantage.h")),
    ],
)
def test_a_planted_fault_is_found(tree, gamma, said):
    out = subprocess.run(
        [tree / ".ci/sanitize", f"tests/test_game.py::test_it[{gamma}]"],
        env=os.environ | {"METTA_FAST_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=110,
    )
    told = out.stdout + out.stderr
    assert (f"gamma {gamma} passed" in told, out.returncode == 0) == (not said, not said), told[-3000:]
    for words in said:
        assert words in told, told[-3000:]
