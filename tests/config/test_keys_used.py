"""Tests that every key has an effect: each key of the schema is read outside the configuration itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metta_fast.config.keys import keys

ROOT = Path(__file__).parents[2]
OURS = {"schema.py", "run_schema.py", "keys.py", "compose.py", "config_files.py", "resolve.py", "fit_sizes.py",
        "sizes.py", "hardware.py", "explain.py", "fit_devices.py", "env_on_gpu.py", "memory_estimate.py", "memory.py",
        "choose_profile.py", "smaller_sizes.py", "algorithm_keys.py"}  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> str:
    files = [*(ROOT / "metta_fast").rglob("*.py"), *(ROOT / "envs").rglob("*.py"), *ROOT.glob("*.py")]
    return "\n".join(file.read_text() for file in files if file.name not in OURS)


@pytest.mark.parametrize("path", keys())
def test_it_is_read(path: str, sources: str) -> None:
    assert re.search(rf"\.{path.rsplit('.', 1)[-1]}\b(?!\s*=[^=])", sources), f"{path} has no effect"
