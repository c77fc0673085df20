"""Steps and resets one environment of gymnax's interface, whatever the version.

    rules = Rules(env, params)
    obs, state = rules.reset(key)
    obs, state, reward, terminal, final, truncation, info = rules.step(key, state, action)

**Ends and limits.** gymnax ≥ 1 says `terminated`, and `is_truncated(state, params)` has the time limit. Earlier
versions and Craftax say `done`, which holds both: there an end that `is_terminal` does not confirm when the limit in
`params` is taken away is the time limit's.
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from metta_fast.envs.batched.sums import numbers
from metta_fast.envs.info_stats import MOST

LIMITS = ("max_steps_in_episode", "max_timesteps", "max_episode_steps", "max_steps", "episode_length")
"""Fields of params that are a time limit: gymnax's, Craftax's, and customary names."""
NO_LIMIT = 2**30
FINAL = "final_observation"
"""Entry of info in which gymnax ≥ 1 gives the last observation."""


class Rules:
    """Steps and resets one environment, whatever its version of the interface.

    Attributes:
        params: given, or the environment's default_params.
        has_final_obs: whether the last observation of an episode can be seen.
        max_steps: the time limit, 0 if none is known.
        numbers: names of the numbers in info, K of them.
        action_shape, discrete, start: of the environment's actions; `start` is the first of discrete ones.
    """

    def __init__(self, env: Any, params: Any = None) -> None:
        self.env = env
        self.params = getattr(env, "default_params", None) if params is None else params
        kind = type(env)
        self.split = callable(getattr(kind, "step_env", None)) and callable(getattr(kind, "reset_env", None))
        """Whether a step without a reset can be had; a wrapper's `step` may do more than what it wraps."""
        limit = next((name for name in LIMITS if hasattr(self.params, name)), None)
        self.max_steps = int(getattr(self.params, limit)) if limit else 0
        self._unlimited = self._without(limit) if limit and hasattr(kind, "is_terminal") else None
        self._says_truncated = hasattr(kind, "is_truncated")
        self.notes: dict[str, str] = {}
        self._tells_limits = True
        key = jax.random.PRNGKey(0)
        space = env.action_space(self.params)
        self.discrete, self.action_shape = hasattr(space, "n"), tuple(space.shape)
        self.start = getattr(space, "start", 0)
        self.obs, self.state = jax.eval_shape(self.reset, key)
        stepped = jax.eval_shape(self.step, key, self.state, self.sample_action())
        self.has_final_obs = stepped[4] is not None
        self.numbers = tuple(name for name, value in stepped[6].items() if value.shape == ())[:MOST]
        if not self._tells_limits:
            self.notes["limit"] = (
                "the environment does not tell a time limit from another end: every end counts as terminal"
            )

    def _without(self, limit: str) -> Any:
        """Returns the parameters without the time limit; None if they cannot be changed."""
        params: Any = self.params
        if callable(getattr(params, "replace", None)):
            return params.replace(**{limit: NO_LIMIT})
        return replace(params, **{limit: NO_LIMIT}) if is_dataclass(params) else None  # type: ignore[type-var]

    def sample_action(self) -> Any:
        return jnp.zeros(self.action_shape, jnp.int32 if self.discrete else jnp.float32)

    def action(self, row: Any) -> Any:
        """Returns the environment's action of a row [W] of the policy's."""
        return (row[0] + self.start).astype(jnp.int32) if self.discrete else row.reshape(self.action_shape)

    def reset(self, key: Any) -> tuple[dict[str, Any], Any]:
        """Returns ({leaf: array}, state) of a new episode."""
        reset = self.env.reset_env if self.split else self.env.reset
        obs, state = reset(key, self.params)
        return leaves(obs), state

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        """Returns (obs, state, reward, terminal, final observation or None, truncation, numbers in info). With `split`,
        obs and state are those before a reset, and final is obs."""
        out = (self.env.step_env if self.split else self.env.step)(key, state, action, self.params)
        obs, state, reward, *ends, info = out
        truncated = jnp.zeros((), bool)
        done = jnp.asarray(ends[0], bool)
        if len(ends) == 2:
            truncated = jnp.asarray(ends[1], bool)
        elif self.split and self._says_truncated:
            truncated = jnp.asarray(self.env.is_truncated(state, self.params), bool)
        elif self.split and self._unlimited is not None:
            natural = jnp.asarray(self.env.is_terminal(state, self._unlimited), bool)
            done, truncated = done & natural, done & ~natural
        else:
            self._tells_limits = False
        found = leaves(obs)
        final: dict[str, Any] | None = found if self.split else None
        if not self.split and FINAL in info:
            last = leaves(info[FINAL])
            if jax.tree_util.tree_map(jnp.shape, last) == jax.tree_util.tree_map(jnp.shape, found):
                final = last
        info = {name: value for name, value in numbers(info) if isinstance(value, (int, float, jax.Array))}
        return found, state, jnp.asarray(reward, jnp.float32), done, final, truncated, info


def leaves(obs: Any) -> dict[str, Any]:
    """Returns the arrays of an observation by their path: "obs" for a single one. Flags become uint8, floats float32
    unless they are float16."""
    found = {}
    for path, value in jax.tree_util.tree_flatten_with_path(obs)[0]:
        value = jnp.asarray(value)
        if value.dtype == bool:
            value = value.astype(jnp.uint8)
        elif jnp.issubdtype(value.dtype, jnp.floating) and value.dtype not in (jnp.float32, jnp.float16):
            value = value.astype(jnp.float32)
        found["/".join(_word(step) for step in path) or "obs"] = value
    return found


def _word(step: Any) -> str:
    for name in ("key", "name", "idx"):
        if hasattr(step, name):
            return str(getattr(step, name))
    return str(step)
