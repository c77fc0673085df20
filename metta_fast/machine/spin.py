"""Chooses how long idle threads poll for work before they sleep."""

from __future__ import annotations

from metta_fast.machine.hardware import allowed_cores

SPIN_S = 50e-6
"""Seconds that an idle thread polls before it sleeps, where there is a core for each thread."""


def spin_seconds(threads: int) -> float:
    """Returns SPIN_S if the caller and `threads` threads or processes each have a core, else 0 (sleep at once)."""
    return SPIN_S if threads < allowed_cores() else 0.0
