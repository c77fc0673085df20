"""Gives a vector of environments Gymnasium's vector API (gymnasium.vector.VectorEnv).

    envs = metta_fast.make_vec("CartPole-v1", num_envs=8, api="gymnasium")
    obs, infos = envs.reset(seed=1)
    obs, reward, terminated, truncated, infos = envs.step(envs.action_space.sample())

Autoreset is NEXT_STEP: the step that ends an episode returns its last observation, and the next step ignores the action
and returns the first of the new episode, with reward 0. Environment i is seeded with a hash of (seed, i)
(envs/python_env.py: env_seed), where SyncVectorEnv uses seed + i. Infos are empty, and rewards have float32's
precision.

Place in the flow: make_vec.py makes it around any backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from metta_fast.contracts.env import Array, EnvFactory, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorEnv
from metta_fast.envs.nested import joined, leaves
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.spaces import Part, observation_parts

WIDEST = 1 << 20
"""Most whole numbers of a Box action that float32 rows tell apart."""


class GymnasiumVector(gymnasium.vector.VectorEnv):
    """Steps all environments of a vector together (see the module's docstring)."""

    def __init__(self, vec: VectorEnv, factory: EnvFactory) -> None:
        spec = factory.spec
        if spec.agents_per_env != 1:
            raise UserError(
                f"api='gymnasium': {spec.name} has {spec.agents_per_env} agents in each environment, and Gymnasium's "
                "vector API is for one; leave api out"
            )
        if spec.action_mask:
            raise UserError(
                f"api='gymnasium': {spec.name} gives action masks apart from its observation, and Gymnasium's vector "
                "API has no place for them; leave api out, or give the factory with action_mask='none'"
            )
        if not spec.has_final_obs:
            raise UserError(
                f"api='gymnasium': {spec.name} resets in the same step and gives no final observation; leave api out"
            )
        self.vec, self.num_envs = vec, vec.num_envs
        if isinstance(factory, PythonEnvFactory):
            self.single_observation_space = factory.observation_space
            self.single_action_space = factory.action_space
            self._parts: tuple[Part, ...] = observation_parts(factory.observation_space)
            self.spec = getattr(factory.make_env, "spec", None)
        else:
            boxes: dict[str, spaces.Space[Any]] = {name: _box(leaf) for name, leaf in spec.obs.items()}
            alone = list(boxes) == ["obs"]
            self.single_observation_space = boxes["obs"] if alone else spaces.Dict(boxes)
            self.single_action_space = _action_space(factory)
            self._parts = observation_parts(self.single_observation_space)
        self._actions = _Actions(self.single_action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments. Without a seed, a new one is drawn from `np_random`.

        Raises:
            UserError: a list of seeds, or options.
        """
        if options:
            raise UserError(f"reset(options={options!r}): the environments take none here; leave it out")
        if seed is not None and (
            isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0
        ):
            raise UserError(
                f"reset(seed={seed!r}): expected one whole number of at least 0, for all environments"
            )
        super().reset(seed=None if seed is None else int(seed))
        chosen = int(seed) if seed is not None else int(self.np_random.integers(1 << 62))
        self.vec.async_reset(chosen)
        self.vec.hold_all()
        return self._observed(), {}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Steps all environments. Raises UserError for actions of another shape or outside their space."""
        rows = self._actions.rows(actions, self.num_envs)
        for block in self.vec.hold_all():
            self.vec.send(block, rows[block.start : block.stop])
        self.vec.hold_all()
        done = self.vec.rows
        flags = done.terminal.astype(np.bool_), done.truncation.astype(np.bool_)
        return self._observed(), done.reward.astype(np.float64), *flags, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the vector and its workers."""
        self.vec.close()

    def _observed(self) -> Any:
        """Returns a copy of all observations, in the batched space's form."""
        found = {part.path: _values(part, self.vec.rows.obs[part.name]) for part in self._parts}
        space = self.single_observation_space
        values = [found[path].astype(leaf.dtype, copy=False) for path, leaf in leaves(space)]
        return joined(space, iter(values).__next__)


def _values(part: Part, rows: Array) -> Array:
    """Returns the leaf's values [n, …] as the environments gave them: of one-hot rows, the numbers."""
    n = len(rows)
    if not part.nvec:
        return rows.reshape(n, *part.shape).copy()
    edges = np.cumsum(part.nvec)[:-1]
    numbers = [piece.argmax(1) for piece in np.split(rows.reshape(n, -1), edges, axis=1)]
    return (np.stack(numbers, 1) + np.array(part.start)).astype(part.dtype).reshape(n, *part.shape)


class _Actions:
    """Turns actions of the batched space into rows: what envs/actions decodes."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.leaves = [(path, _LeafActions(leaf)) for path, leaf in leaves(space)]

    def rows(self, actions: Any, n: int) -> Array:
        """Returns rows [n, width]: the choices of all parts, then their numbers."""
        choices: list[Array] = []
        numbers: list[Array] = []
        for path, leaf in self.leaves:
            given = actions
            for key in path:
                try:
                    given = given[key]
                except (KeyError, IndexError, TypeError):
                    raise UserError(
                        f"step(actions): there is no {'/'.join(map(str, path))}, expected actions of {self.space}"
                    ) from None
            (numbers if isinstance(leaf.space, spaces.Box) else choices).append(leaf.rows(given, n))
        return np.concatenate([*choices, *numbers], 1)


class _LeafActions:
    """Does so for a space without parts."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.whole = isinstance(space, spaces.Box) and np.dtype(space.dtype).kind != "f"
        if self.whole:
            assert isinstance(space, spaces.Box)
            low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
            if (high - low >= WIDEST).any():
                raise UserError(
                    f"api='gymnasium': action space {space} has more than {WIDEST} numbers; leave api out"
                )
            self.low, self.span = low, high - low

    def rows(self, actions: Any, n: int) -> Array:
        space = self.space
        shape = (n, *(space.shape or ()))
        try:
            given = np.asarray(actions)
        except (ValueError, TypeError):  # rows of different lengths
            given = np.empty(0, object)
        if given.shape != shape or given.dtype.kind not in "biuf":
            raise UserError(
                f"step(actions): shape {given.shape} of {given.dtype}, expected {shape} of {space}"
            )
        flat = given.reshape(n, -1)
        if isinstance(space, spaces.Box):
            if not self.whole:
                return flat.astype(np.float32)
            share = (np.clip(flat, self.low, self.low + self.span) - self.low + 0.5) / (self.span + 1)
            return (self.low + share * self.span).astype(np.float32)
        if given.dtype.kind == "f":
            raise UserError(f"step(actions): numbers of {given.dtype}, expected whole numbers of {space}")
        start, sizes = _choices(space)
        counted = flat.astype(np.int64) - start
        outside = ((counted < 0) | (counted >= sizes)).any(1)
        if outside.any():
            env = int(outside.argmax())
            raise UserError(
                f"step(actions): environment {env} was given {given[env]}, which is not in {space}"
            )
        return counted.astype(np.int32)


def _choices(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """Returns the first value of each head and the number of its choices."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.reshape(-1).astype(np.int64), space.nvec.reshape(-1).astype(np.int64)
    return 0, 2


def _box(leaf: Leaf) -> spaces.Box:
    """Returns the space of a native environment's leaf."""
    dtype = np.dtype(leaf.dtype)
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, leaf.shape, dtype.type)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    return spaces.Box(limits.min if limits else 0, limits.max if limits else 1, leaf.shape, dtype.type)


def _action_space(factory: EnvFactory) -> spaces.Space[Any]:
    action = factory.spec.action
    if action.kind == "box":
        return spaces.Box(
            np.array(action.low, np.float32), np.array(action.high, np.float32), dtype=np.float32
        )
    start = action.start or (0,) * len(action.nvec)
    if len(action.nvec) == 1:
        return spaces.Discrete(action.nvec[0], start=start[0])
    return spaces.MultiDiscrete(np.array(action.nvec), start=np.array(start))
