"""Provides specs and observations for the policy tests."""

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.envs.grid.config import grid_config
from metta_fast.envs.grid.env import GridFactory, GridSim


def flat_spec(nvec: tuple[int, ...] = (3,), **leaves: Leaf) -> EnvSpec:
    """An environment that is not the grid; by default 5 floats."""
    return EnvSpec("own", 1, leaves or {"obs": Leaf((5,), "float32")}, ActionSpec("discrete", nvec))


def grid_spec(kind: str) -> EnvSpec:
    return GridFactory(observation=kind).spec


def grid_obs(kind: str, rows: int) -> Tensor:
    """[rows, *shape] uint8 from games in which agents have acted at random."""
    rng = np.random.default_rng(3)
    keys = {"num_agents": 8, "rooms": [1, 1], "room_size": [12, 12], "max_steps": 50}
    sim = GridSim(*grid_config(observation=kind, **keys), seed=5)
    sim.reset()
    seen = []
    while len(seen) * 8 < rows:
        actions = np.stack([rng.integers(0, 9, 8), rng.integers(0, 4, 8)], 1).astype(np.int32)
        sim.step(actions)
        seen.append(torch.from_numpy(sim.observe(kind).copy()))
    return torch.cat(seen)[:rows]


def random_obs(spec: EnvSpec, *lead: int, seed: int = 0) -> dict[str, Tensor]:
    """Any values that the leaves' dtypes allow (floats: normal), [*lead, *shape] each."""
    g = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(*lead, *leaf.shape, generator=g)
        if leaf.dtype == "float32"
        else torch.randint(0, 256, (*lead, *leaf.shape), generator=g).to(getattr(torch, leaf.dtype))
        for name, leaf in spec.obs.items()
    }
