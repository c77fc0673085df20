"""Describes the machine and the software of a measurement."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from metta_fast.machine import hardware
from metta_fast.version import __version__


def describe() -> dict[str, Any]:
    """Returns cpu, cores (allowed), memory_gb, gpu (names), driver, python, torch, metta_fast, commit; if known."""
    machine = hardware.detect()
    found: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": machine.cores,
        "memory_gb": round(machine.memory / hardware.GIB, 1),
        "gpu": [card.name for card in machine.gpus] or "none",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "metta_fast": __version__,
    }
    driver = _driver() if machine.gpus else None
    if driver:
        found["driver"] = driver
    commit = _commit()
    if commit:
        found["commit"] = commit
    return found


def _cpu() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def _driver() -> str | None:
    """Returns the NVIDIA driver's version, or None for other GPUs."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _commit() -> str | None:
    """Returns the checkout's commit, with `+` if tracked files were changed; None outside a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        words = ["git", "-C", str(root)]
        head = subprocess.run(
            [*words, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(
            [*words, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
