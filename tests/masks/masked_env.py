"""An environment of any action space that raises on an illegal action; its masks come from any place, in any form."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from metta_fast.envs.actions.leaf import leaf_spec
from metta_fast.envs.nested import joined, leaves

FORMS = ("flat", "int8", "list", "parts")
SOURCES = ("obs", "info", "method")
SPACES = {
    "discrete": spaces.Discrete(5, start=2),
    "heads": spaces.MultiDiscrete([3, 2, 4]),
    "bits": spaces.MultiBinary((2, 2)),
    "mixed": spaces.Dict(
        move=spaces.Box(-1, 1, (2,), np.float32),
        pick=spaces.Tuple([spaces.Discrete(4, start=5), spaces.MultiBinary(2)]),
        turn=spaces.MultiDiscrete([2, 3]),
    ),
    "tuple": spaces.Tuple([spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(3)]),
}


class MaskedEnv(gymnasium.Env):
    """Episodes of `length` steps; of their last row nothing is legal. agents: several, with the protocol of
    python_env.py. live=False: nothing is legal in any row."""

    def __init__(
        self,
        action: spaces.Space,
        source: str = "info",
        form: str = "flat",
        agents: int = 0,
        length: int = 4,
        live: bool = True,
    ):
        self.live = live
        self.action_space, self.source, self.form, self.length = action, source, form, length
        self.leaves = [space for _, space in leaves(action)]
        self.nvecs = [leaf_spec(space).nvec for space in self.leaves]
        self.agents = (agents,) if agents else ()
        if agents:
            self.num_agents = agents
        seen = spaces.Box(-1, 1, (2,), np.float32)
        mask = spaces.MultiBinary(max(1, sum(sum(nvec) for nvec in self.nvecs)))
        self.observation_space = spaces.Dict(action_mask=mask, seen=seen) if source == "obs" else seen
        if source == "method":
            self.action_masks = lambda: self.mask

    def _head(self, n: int, live: bool) -> np.ndarray:
        legal = self.np_random.random((*self.agents, n)) < 0.3
        np.put_along_axis(legal, self.np_random.integers(0, n, (*self.agents, 1)), True, -1)
        return legal & (live and self.live)

    def _given(self) -> Any:
        """The masks in the form that was asked for."""
        flat = np.concatenate([head for part in self.heads for head in part], -1)
        if self.source == "obs" or self.form == "int8":
            return flat.astype(np.int8)
        if self.form == "parts":
            found = iter(self.heads)

            def part() -> Any:
                heads = next(found)
                if not heads or all(head.all() for head in heads):
                    return None
                return heads[0] if len(heads) == 1 else tuple(heads)

            whole = joined(self.action_space, part)
            return flat if whole is None else whole
        return flat.tolist() if self.form == "list" else flat

    def _row(self, live: bool = True) -> tuple[Any, dict]:
        self.heads = [[self._head(n, live) for n in nvec] for nvec in self.nvecs]
        self.mask = self._given()
        seen = self.np_random.uniform(-1, 1, (*self.agents, 2)).astype(np.float32)
        obs = {"action_mask": self.mask, "seen": seen} if self.source == "obs" else seen
        return obs, {"action_mask": self.mask} if self.source == "info" else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._row()

    def step(self, action):
        assert self.agents or self.action_space.contains(action), action
        given = [action]
        if isinstance(self.action_space, (spaces.Dict, spaces.Tuple)):
            given = [_at(action, path) for path, _ in leaves(self.action_space)]
        for space, heads, part in zip(self.leaves, self.heads, given):
            start = np.asarray(getattr(space, "start", 0))
            choices = (np.asarray(part) - start).reshape(*self.agents, -1)
            for i, head in enumerate(heads):
                legal = np.take_along_axis(head, choices[..., i : i + 1].astype(np.int64), -1)
                assert legal.all(), "an illegal action was sent"
        self.steps += 1
        over = self.steps == self.length
        obs, info = self._row(live=not over)
        shape = self.agents or None
        if shape:
            return obs, np.ones(shape), np.full(shape, over), np.zeros(shape, bool), info
        return obs, 1.0, over, False, info


def _at(action: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        action = action[key]
    return action
