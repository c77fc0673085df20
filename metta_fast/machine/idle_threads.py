"""How torch's threads on the CPU wait. Read by OpenMP when torch is loaded: call it before."""

from __future__ import annotations

import os

SPINS = 5000
"""Turns of the waiting loop, some tens of microseconds."""


def let_idle_threads_sleep() -> None:
    """Make idle threads spin for a moment, then sleep. The user's own OMP_WAIT_POLICY or GOMP_SPINCOUNT stays.

    By default they spin for long: where environments or anything else want the same cores, that cost nine tenths of
    the speed. Sleeping at once costs a third of it on a quiet machine (2 cores, grid: 98k steps/s against 145k).
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
