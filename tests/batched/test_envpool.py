"""EnvPool's environments as rows: against a second pool that is stepped directly, bit for bit.

PYTHONPATH=… python -m pytest tests/batched/test_envpool.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

envpool = pytest.importorskip("envpool")

from tests.batched.envs import vector_of  # noqa: E402
from tests.vector.device_suite import HORIZON, attached, check_ends, play, shown, tape_for  # noqa: E402

ENVS, STEPS = 6, 8 * HORIZON


def pool(name: str, num_envs: int = ENVS) -> Any:
    return envpool.make_gymnasium(name, num_envs=num_envs, seed=3, max_episode_steps=23)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_rows_are_those_of_a_pool_that_is_stepped_directly(name: str) -> None:
    vec, plain = vector_of(pool(name), ENVS), pool(name)
    assert (vec.spec.autoreset, vec.spec.max_steps) == ("next_step", 23)
    b, tape = attached(vec), tape_for(vec.spec, ENVS, STEPS)
    vec.async_reset(1)
    obs, _ = plain.reset()
    assert np.array_equal(shown(b, HORIZON)["obs"].numpy(), obs)
    ended = np.zeros(ENVS, bool)
    for actions, row in zip(tape, play(vec, b, tape)):
        given = actions[:, 0].numpy() if vec.spec.action.kind == "discrete" else actions.numpy()
        obs, reward, terminal, truncation, _ = plain.step(given)
        done = (terminal | truncation) & ~ended
        assert np.array_equal(row["obs"].numpy(), obs)
        assert np.array_equal(row["reward"].numpy(), np.where(ended, 0, reward).astype(np.float32))
        assert np.array_equal(row["terminal"].numpy(), terminal & ~ended)
        assert np.array_equal(row["truncation"].numpy(), truncation & ~ended)
        assert np.array_equal(row["mask"].numpy(), ~done)
        assert np.array_equal(row["reset"].numpy(), ended)
        ended = done
    assert "EnvPool's seed is fixed" in vec.notes()[0]
    vec.close()


def test_episode_ends() -> None:
    check_ends(
        lambda num_envs, first_env, total_envs: vector_of(pool("CartPole-v1", num_envs), num_envs),
        STEPS,
        ENVS,
    )
