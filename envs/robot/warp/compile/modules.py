"""Finds which of Warp's modules a simulation needs, by a run of its host code that launches and compiles nothing.

    for module, block_dim in needed(simulation): ...

A module of Warp is what is compiled at once: a file's kernels, or one kernel made for the model's sizes. It is compiled
again for each size of thread blocks. Launching through `Module.load` is what Warp 1.19 does; packages.py pins it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metta_fast.envs.robot.warp.simulation import Simulation


def needed(simulation: Simulation) -> list[tuple[Any, int]]:
    """Returns (warp Module, threads of a block) of every launch of a step and a forward, each once.

    The simulation's state is not kept.
    """
    option = simulation.model.opt
    found: dict[tuple[Any, int], None] = {}
    was = option.iterations, option.graph_conditional, simulation.substeps
    # Each iteration launches the same; without launches a loop that waits for the solver would not end.
    option.iterations, option.graph_conditional, simulation.substeps = min(was[0], 2), False, 1
    try:
        with _recorded(found):
            simulation.step()
            simulation.forward()
    finally:
        option.iterations, option.graph_conditional, simulation.substeps = was
    return list(found)


@contextmanager
def _recorded(found: dict[tuple[Any, int], None]) -> Iterator[None]:
    """Launches note their module in `found` and do nothing."""
    from warp._src import context

    real, launch = context.Module.load, context.launch.__code__

    def load(self: Any, device: Any, block_dim: int | None = None, **keys: Any) -> Any:
        if (
            sys._getframe(1).f_code is not launch
        ):  # asked for a kernel's registers, which takes the compiled one
            return real(self, device, block_dim, **keys)
        found[self, self.options["block_dim"] if block_dim is None else block_dim] = None
        return None

    context.Module.load = load  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        context.Module.load = real  # type: ignore[method-assign]
