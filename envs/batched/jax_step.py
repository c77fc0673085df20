"""Turns one environment of gymnax's interface into functions over all of them, for jax_source.py to compile.

    rules = Rules(env, params)
    obs, state = rules.begin(keys)
    found = stepper(rules, chunk)(state, totals, keys, number, actions)

**Ends and limits.** gymnax ≥ 1 says `terminated`, and `is_truncated(state, params)` has the time limit. Earlier
versions and Craftax say `done`, which holds both: there an end that `is_terminal` does not confirm when the limit in
`params` is taken away is the time limit's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from metta_fast.envs.batched.sums import numbers
from metta_fast.envs.info_stats import MOST

LIMITS = ("max_steps_in_episode", "max_timesteps", "max_episode_steps", "max_steps", "episode_length")
"""Fields of params that are a time limit: gymnax's, Craftax's, and customary names."""
NO_LIMIT = 2**30
FINAL = "final_observation"
"""Entry of info in which gymnax ≥ 1 gives the last observation."""


class Found(NamedTuple):
    """What a step of N environments gave; flags are uint8, which every version of dlpack knows."""

    state: Any
    obs: dict[str, Any]
    reward: Any
    terminal: Any
    truncation: Any
    final: dict[str, Any] | None
    totals: Any
    """[K+1] float32: sums of `Rules.numbers` over episodes that ended, then the number of those."""


class Rules:
    """Steps and resets one environment, whatever its version of the interface.

    Attributes:
        params: given, or the environment's default_params.
        has_final_obs: whether the last observation of an episode can be seen.
        max_steps: the time limit, 0 if none is known.
        numbers: names of the numbers in info, K of them.
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
        self.obs, state = jax.eval_shape(self.reset, key)
        stepped = jax.eval_shape(self.step, key, state, self.sample_action())
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
        space = self.env.action_space(self.params)
        return jnp.zeros(tuple(space.shape), jnp.int32 if hasattr(space, "n") else jnp.float32)

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

    def begin(self, keys: Any) -> tuple[dict[str, Any], Any]:
        """Returns the first observations and states of all environments: a reset by the keys of step 0."""
        return jax.vmap(self.reset)(_of_step(keys, jnp.uint32(0)))


def _of_step(keys: Any, number: Any) -> Any:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, number)


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


def stepper(rules: Rules, chunk: int) -> Callable[[Any, Any, Any, Any, Any], Found]:
    """Returns a function (state, totals, keys [N], number of the step, actions [N, W]) → Found.

    Args:
        chunk: how many environments are reset together, where only those that ended are reset.
    """
    space = rules.env.action_space(rules.params)
    discrete, shape = hasattr(space, "n"), tuple(space.shape)
    start = getattr(space, "start", 0)

    def one(key: Any, state: Any, row: Any) -> tuple[Any, ...]:
        action = (row[0] + start).astype(jnp.int32) if discrete else row.reshape(shape)
        return rules.step(key, state, action)

    def step(state: Any, totals: Any, keys: Any, number: Any, actions: Any) -> Found:
        both = jax.vmap(jax.random.split)(_of_step(keys, number))
        obs, state, reward, terminal, final, truncation, info = jax.vmap(one)(both[:, 0], state, actions)
        done = terminal | truncation
        if rules.split:
            obs, state = _reset(rules, obs, state, done, both[:, 1], chunk)
        found = [*(jnp.asarray(info[name], jnp.float32) for name in rules.numbers), jnp.ones_like(reward)]
        totals = totals + jnp.where(done, jnp.stack(found), 0.0).sum(1)
        flags = terminal.astype(jnp.uint8), truncation.astype(jnp.uint8)
        return Found(state, obs, reward, *flags, final, totals)

    return step


@cache
def compiled(rules: Rules, chunk: int) -> tuple[Any, Any]:
    """Returns `begin` and `stepper`'s function, compiled once for all vectors of these rules. The step takes over the
    memory of state and totals."""
    return jax.jit(rules.begin), jax.jit(stepper(rules, chunk), donate_argnums=(0, 1))


def _reset(rules: Rules, obs: Any, state: Any, done: Any, keys: Any, chunk: int) -> tuple[Any, Any]:
    """Resets the environments `done`, `chunk` of them at a time, until none is left."""
    size = done.shape[0]
    count = done.sum()
    order = jnp.argsort(~done, stable=True)  # those that ended come first
    order = jnp.concatenate([order, jnp.full(chunk, size, order.dtype)])

    def body(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        at, obs, state = carry
        which = jax.lax.dynamic_slice(order, (at,), (chunk,))
        first = jax.vmap(rules.reset)(keys[jnp.minimum(which, size - 1)])
        to = jnp.where(at + jnp.arange(chunk) < count, which, size)
        obs, state = jax.tree_util.tree_map(
            lambda old, new: old.at[to].set(new.astype(old.dtype), mode="drop"), (obs, state), first
        )
        return at + chunk, obs, state

    begin = (jnp.zeros((), count.dtype), obs, state)
    return jax.lax.while_loop(lambda carry: carry[0] < count, body, begin)[1:]
