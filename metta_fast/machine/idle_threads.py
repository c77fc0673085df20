"""Sets how torch's idle CPU threads wait. OpenMP reads the setting when torch is loaded: call this before."""

from __future__ import annotations

import os

SPINS = 5000
"""Iterations of the waiting loop: some tens of microseconds."""


def let_idle_threads_sleep() -> None:
    """Makes idle threads spin briefly, then sleep. A user's own OMP_WAIT_POLICY or GOMP_SPINCOUNT is kept.

    OpenMP's default is a long spin, which slows environments that need the same cores. Sleeping at once slows a
    quiet machine, because threads have to be woken for every operation.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
