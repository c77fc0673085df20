"""Small environments in JAX of gymnax's interface, in its old form (done) and its new one (terminated, truncated).

env=tests.batched.jax_envs:name
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Discrete:
    """gymnax.environments.spaces.Discrete."""

    shape, dtype = (), jnp.int32

    def __init__(self, n: int) -> None:
        self.n = n


class Box:
    """gymnax.environments.spaces.Box."""

    def __init__(self, low: Any, high: Any, shape: Any, dtype: Any = jnp.float32) -> None:
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype


class State(NamedTuple):
    total: Any
    time: Any
    most: Any
    noise: Any


class Params(NamedTuple):
    max_steps_in_episode: int = 7

    def replace(self, **keys: Any) -> Params:
        return self._replace(**keys)


class Tally:
    """Adds its actions; too many end it by the rules, the limit cuts it: `done` is both."""

    default_params = Params()

    def reset_env(self, key: Any, params: Any) -> Any:
        one, two = jax.random.split(key)
        state = State(jax.random.randint(one, (), 0, 3), 0, jax.random.randint(two, (), 6, 14), key[0])
        return self.look(state), state

    def look(self, state: State) -> Any:
        seen = jnp.stack([state.total, state.time, state.most]).astype(jnp.int32)
        return {"seen": seen, "late": jnp.asarray(state.time > 3), "noise": state.noise.astype(jnp.float32)}

    def step_env(self, key: Any, state: State, action: Any, params: Any) -> Any:
        state = State(state.total + action, state.time + 1, state.most, key[1])
        reward = state.total / 4
        done = self.is_terminal(state, params)
        return self.look(state), state, reward, done, {"score": state.total, "words": "not a number"}

    def is_terminal(self, state: State, params: Any) -> Any:
        return (state.total > state.most) | (state.time >= params.max_steps_in_episode)

    def reset(self, key: Any, params: Any = None) -> Any:
        return self.reset_env(key, params)

    def step(self, key: Any, state: State, action: Any, params: Any = None) -> Any:
        """Resets itself in the same step."""
        key, again = jax.random.split(key)
        obs, state, reward, done, info = self.step_env(key, state, action, params)
        other = self.reset_env(again, params)
        obs, state = jax.tree_util.tree_map(lambda new, old: jnp.where(done, new, old), other, (obs, state))
        return obs, state, reward, done, {"score": info["score"]}

    def action_space(self, params: Any = None) -> Any:
        return Discrete(3)

    def observation_space(self, params: Any = None) -> Any:
        return None


class NewTally(Tally):
    """The same in gymnax 1's form: `terminated` alone, and is_truncated."""

    def is_terminated(self, state: State, params: Any) -> Any:
        return state.total > state.most

    def is_truncated(self, state: State, params: Any) -> Any:
        return state.time >= params.max_steps_in_episode

    def step_env(self, key: Any, state: State, action: Any, params: Any) -> Any:
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        return obs, state, reward, self.is_terminated(state, params), info


class Wrapped:
    """A wrapper: `step` and `reset` alone count, though what it wraps has more."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, key: Any, params: Any = None) -> Any:
        obs, state = self._env.reset(key, params)
        return obs["seen"], state

    def step(self, key: Any, state: Any, action: Any, params: Any = None) -> Any:
        obs, state, reward, done, info = self._env.step(key, state, action, params)
        return obs["seen"], state, reward + 1, done, info


class Guess:
    """Shows a number; pays as near as the action, two numbers, comes to it and its half. Episodes of 8 steps."""

    default_params = Params(8)

    def reset_env(self, key: Any, params: Any) -> Any:
        state = State(jax.random.uniform(key, (), minval=-1.0), 0, 0, 0)
        return jnp.stack([state.total, 1.0]), state

    reset = reset_env

    def step_env(self, key: Any, state: State, action: Any, params: Any) -> Any:
        reward = 1 - jnp.abs(action - jnp.stack([state.total, state.total / 2])).mean()
        state = State(jax.random.uniform(key, (), minval=-1.0), state.time + 1, 0, 0)
        return jnp.stack([state.total, 1.0]), state, reward, state.time >= params.max_steps_in_episode, {}

    step = step_env

    def is_terminal(self, state: State, params: Any) -> Any:
        return state.time >= params.max_steps_in_episode

    def action_space(self, params: Any = None) -> Any:
        return Box(-1.0, 1.0, (2,))

    def observation_space(self, params: Any = None) -> Any:
        return Box(-1.0, 1.0, (2,))


class Name(Guess):
    """Shows one of four numbers; naming it pays 1."""

    def reset_env(self, key: Any, params: Any) -> Any:
        state = State(jax.random.randint(key, (), 0, 4), 0, 0, 0)
        return jax.nn.one_hot(state.total, 4), state

    reset = reset_env

    def step_env(self, key: Any, state: State, action: Any, params: Any) -> Any:
        reward = (action == state.total).astype(float)
        state = State(jax.random.randint(key, (), 0, 4), state.time + 1, 0, 0)
        done = state.time >= params.max_steps_in_episode
        return jax.nn.one_hot(state.total, 4), state, reward, done, {}

    step = step_env

    def action_space(self, params: Any = None) -> Any:
        return Discrete(4)


def name(config: Any) -> Any:
    return Name()
