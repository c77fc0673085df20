"""MuJoCo MJX through the adapter for JAX: Gymnasium's InvertedPendulum as an environment of gymnax's interface.

python -m venv mjx && mjx/bin/pip install -e . mujoco-mjx==3.17.0 jax
mjx/bin/metta-fast train env=tests.batched.mjx_envs:make env.num_envs=256
mjx/bin/python -m tests.batched.mjx_envs                # MJX's physics beside Gymnasium's, and its speed
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from tests.batched.jax_envs import Box

XML = Path(gymnasium.__file__).parent / "envs/mujoco/assets/inverted_pendulum.xml"
FRAME_SKIP, FALLEN = 2, 0.2


class State(NamedTuple):
    data: Any
    time: Any


class Params(NamedTuple):
    max_steps_in_episode: int = 1000


class Pendulum:
    """InvertedPendulum-v5: 1 for each step until the pole's angle passes FALLEN."""

    default_params = Params()

    def __init__(self) -> None:
        self.model = mjx.put_model(mujoco.MjModel.from_xml_path(str(XML)))
        self.start = mjx.make_data(self.model)

    def reset_env(self, key: Any, params: Params) -> Any:
        noise = jax.random.uniform(key, (4,), minval=-0.01, maxval=0.01)
        data = self.start.replace(qpos=self.start.qpos + noise[:2], qvel=noise[2:])
        return self.look(data), State(data, jnp.int32(0))

    def look(self, data: Any) -> Any:
        return jnp.concatenate([data.qpos, data.qvel])

    def step_env(self, key: Any, state: State, action: Any, params: Params) -> Any:
        data = state.data.replace(ctrl=jnp.ravel(action)[:1])
        data = jax.lax.fori_loop(0, FRAME_SKIP, lambda _, one: mjx.step(self.model, one), data)
        obs, steps = self.look(data), state.time + 1
        fallen = ~(jnp.isfinite(obs).all() & (jnp.abs(obs[1]) <= FALLEN))
        done = fallen | (steps >= params.max_steps_in_episode)
        return obs, State(data, steps), jnp.where(fallen, 0.0, 1.0), done, {}

    def is_terminal(self, state: State, params: Params) -> Any:
        return jnp.abs(state.data.qpos[1]) > FALLEN

    def action_space(self, params: Params) -> Box:
        return Box(-3.0, 3.0, (1,))

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (4,))


def make(config: Any) -> Pendulum:
    return Pendulum()


def beside_gymnasium(steps: int = 30) -> float:
    """Returns the largest difference of an observation from Gymnasium's, from the same start and actions."""
    env, pendulum = gymnasium.make("InvertedPendulum-v5").unwrapped, Pendulum()
    obs, _ = env.reset(seed=3)
    data = pendulum.start.replace(
        qpos=jnp.asarray(obs[:2], jnp.float32), qvel=jnp.asarray(obs[2:], jnp.float32)
    )
    state, step = State(data, jnp.int32(0)), jax.jit(pendulum.step_env)
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(steps):
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        theirs, reward, terminal, *_ = env.step(action)
        ours, state, own_reward, done, _ = step(jax.random.key(0), state, action, Params())
        worst = max(worst, float(np.abs(np.asarray(ours) - theirs).max()))
        assert (float(own_reward), bool(done)) == (float(reward), bool(terminal))
        if terminal:
            break
    return worst


def speed(count: int, steps: int = 50) -> tuple[float, float]:
    """Returns (seconds to compile, steps per second) of `count` pendulums without a learner."""
    pendulum = Pendulum()
    keys, actions = jax.random.split(jax.random.key(0), count), jnp.zeros((count, 1))
    _, state = jax.vmap(pendulum.reset_env, (0, None))(keys, Params())
    step = jax.jit(jax.vmap(pendulum.step_env, (0, 0, 0, None)))
    begin = time.perf_counter()
    for _ in range(2):  # the second one's types are no longer weak
        _, state, *_ = jax.block_until_ready(step(keys, state, actions, Params()))
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(steps):
        _, state, *_ = step(keys, state, actions, Params())
    jax.block_until_ready(state)
    return compiled, count * steps / (time.perf_counter() - begin)


if __name__ == "__main__":
    print(f"differs from Gymnasium by at most {beside_gymnasium():.2g}")
    for envs in (256, 1024):
        print("{}: compiled in {:.0f} s, {:,.0f} steps/s".format(envs, *speed(envs)))
