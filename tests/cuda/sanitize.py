"""Plays every map builder and observation on the GPU under compute-sanitizer (needs a GPU).

    for tool in "memcheck --report-api-errors no" racecheck initcheck; do
        compute-sanitizer --tool $tool --error-exitcode 1 python -m tests.cuda.sanitize
    done

`python -m tests.cuda.sanitize tokens` plays that observation only: three side by side take a third of the time.
memcheck would count what is no fault of a kernel: cuda.bindings asks the driver for functions that it does not have.

Few envs and short episodes: each kernel of gpu_shell.h runs, with maps built anew, over buffers and over blocks.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.grid.names import OBSERVATIONS
from metta_fast.vector import gpu_engine
from metta_fast.vector.gpu import GpuVector, build_and_step
from tests.cuda.engines import buffers_for, busy_actions
from tests.parity.test_gpu_parity import ASCII, BUILDERS, RULES

ENVS, STEPS = 9, 12


def play(vec: GpuVector, seed: int) -> None:
    """Actions as in the parity tests, drawn beforehand: the program that is watched is the engine's."""
    rng, agents = np.random.default_rng(seed), vec.num_agents
    buffers = buffers_for(vec, STEPS)
    actions = [torch.from_numpy(busy_actions(rng, agents)) for _ in range(STEPS)]
    vec.async_reset(seed, stagger=True)
    for block in vec.hold_all():
        vec.send(block, actions[0][block.start : block.stop].to(vec.device))
    vec.hold_all()
    vec.attach(buffers)
    vec.async_reset(seed, stagger=True)
    buffers.action.copy_(torch.stack(actions))
    for t in range(STEPS):
        build_and_step(vec, t)


def main(observations: list[str]) -> None:
    shapes = [{"shape": "warp"}, {"shape": "warp", "warps": 3}, {"shape": "split"}]
    folder = tempfile.TemporaryDirectory()
    (Path(folder.name) / "maps.txt").write_text(ASCII.strip() + "\n")
    os.chdir(folder.name)
    count = 0
    for observation in observations or OBSERVATIONS:
        for (name, keys), rules in zip(BUILDERS.items(), cycle(RULES.values())):
            for shared in (gpu_engine.SHARED_BYTES, 0):
                gpu_engine.SHARED_BYTES = shared
                short = {**rules, "max_steps": 5}
                factory = GridFactory(observation=observation, **keys, **short)
                for shape in shapes:
                    play(GpuVector(factory, ENVS, 2, **shape), count)
                    count += 1
            gpu_engine.SHARED_BYTES = 48 * 1024
            print(observation, name, flush=True)
    torch.cuda.synchronize()
    print(f"{count} runs of {STEPS} steps with {ENVS} environments")


if __name__ == "__main__":
    main(sys.argv[1:])
