"""Measures the GPU engine's kernels, captured in a graph as in the rollout (needs a GPU).

python -m tests.cuda.measure                          # 2048 envs of the recipe `grid_bench`, every shape
python -m tests.cuda.measure grid_arena tokens 341    # another recipe, observation, number of envs
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

from metta_fast.bench.gpu.clock import MOST_CALLS
from metta_fast.bench.stepping.cpu_simulator import env_config
from metta_fast.envs import make_factory
from metta_fast.vector import gpu_engine
from metta_fast.vector.gpu import GpuVector, build_and_step
from tests.cuda.engines import buffers_for
from tests.policy.time_gpu_act import us

HORIZON = MOST_CALLS
MAPS = 64
"""About as many end in an epoch."""


def row(factory: Any, envs: int, shape: dict, warm: bool = True) -> str:
    kept, gpu_engine.WARM_BYTES = gpu_engine.WARM_BYTES, gpu_engine.WARM_BYTES if warm else 0
    vec = GpuVector(factory, envs, **shape)
    gpu_engine.WARM_BYTES = kept
    b = buffers_for(vec, HORIZON)
    vec.attach(b)
    vec.async_reset(1, stagger=True)
    heads = torch.tensor(vec.spec.action.nvec, device=vec.device)
    b.action.copy_((torch.rand(b.action.shape, device=vec.device) * heads).int())

    def build(_: int) -> None:
        vec.engine.ready[:MAPS] = 0
        vec.build_ahead()

    for _ in range(3):  # away from the first rows
        for t in range(HORIZON):
            build_and_step(vec, t)
    together, alone = us(partial(build_and_step, vec)), us(build)
    name = f"{shape} {'' if warm else 'without reading ahead'}"
    speed = vec.num_agents / together
    return f"{name:48} step {together:7.2f} us   {MAPS} maps {alone:7.2f} us   {speed:8.1f} M/s"


def main() -> None:
    recipe, observation, envs = [*sys.argv[1:], *("grid_bench", "compact", "2048")[len(sys.argv) - 1 :]]
    config = env_config(recipe, observation)
    factory = make_factory(config)
    print(
        f"{torch.cuda.get_device_name()}: {envs} envs x {config.agents_per_env} agents, {observation}, a row:"
    )
    for warps in (1, 2, 4, 8):
        print(row(factory, int(envs), {"shape": "warp", "warps": warps}))
    print(row(factory, int(envs), {"shape": "warp", "warps": 1}, warm=False))
    print(row(factory, int(envs), {"shape": "split"}))


if __name__ == "__main__":
    main()
