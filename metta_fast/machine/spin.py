"""How long idle threads look for work."""

from __future__ import annotations

from metta_fast.machine.hardware import allowed_cores

SPIN_S = 50e-6
"""How long an idle thread looks for work before it sleeps, where there is a core for each thread."""


def spin_seconds(threads: int) -> float:
    """SPIN_S if so many threads or processes and the caller all have a core, else 0: sleep at once."""
    return SPIN_S if threads < allowed_cores() else 0.0
