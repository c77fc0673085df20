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

from metta_fast.envs.robot.warp.draw.context import CHANNELS
from metta_fast.envs.robot.warp.simulation import Simulation


def needed(simulation: Simulation, drawn_envs: int = 1) -> list[tuple[Any, int]]:
    """Returns (warp Module, threads of a block) of every launch of a step, a forward and pictures, each once.

    The simulation's state is not kept.

    Args:
        drawn_envs: worlds whose pictures are made room for. The kernels are the same for any number.
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
            if simulation.how.drawn is not None:
                _draw(simulation, drawn_envs)
    finally:
        simulation.context = None
        option.iterations, option.graph_conditional, simulation.substeps = was
    return list(found)


def _draw(simulation: Simulation, num_envs: int) -> None:
    """Makes what draws, draws and writes pictures of some worlds. Without launches a tree of no extent is made."""
    import warp

    drawn = simulation.how.drawn
    assert drawn is not None
    simulation.make_context(num_envs)
    simulation.draw()
    with warp.ScopedDevice(simulation.place):
        row = warp.empty((num_envs, drawn.size**2, CHANNELS[drawn.kind]), dtype=warp.uint8)
    simulation.write([row])


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
