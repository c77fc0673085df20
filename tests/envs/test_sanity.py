"""Checks the tiny tasks: they keep Gymnasium's contract, and their best players score what their pages say."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from metta_fast.envs.sanity import bandit, catch, copy, cue, parts, target

TASKS = (bandit, catch, copy, cue, parts, target)


def score(env: Any, player: Any, episodes: int = 200) -> float:
    total = 0.0
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        over, memory = False, None
        while not over:
            memory, action = player(obs, memory)
            obs, reward, terminal, truncation, _ = env.step(action)
            total, over = total + reward, terminal or truncation
    return total / episodes


@pytest.mark.parametrize("task", TASKS)
def test_contract(task: Any) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(task.make(SimpleNamespace())(0), skip_render_check=True)


def test_best_players() -> None:
    assert score(bandit.Bandit(), lambda obs, memory: (None, 9)) == pytest.approx(1, abs=0.02)
    assert score(copy.Copy(), lambda obs, memory: (None, obs)) == 1
    scaled = lambda obs, memory: (None, target.LOW + (obs + 1) / 2 * (target.HIGH - target.LOW))  # noqa: E731

    def below(obs: Any, memory: Any) -> tuple[int, int]:  # the ball is the first bright column, remembered
        wanted = int(obs[:-7, :, 0].any(0).argmax()) if memory is None else memory
        return wanted, int(np.sign(wanted - int(obs[-7:, :, 0].any(0).argmax()))) + 1

    assert score(catch.Catch(), below) == 1
    assert score(target.Target(), scaled) == pytest.approx(0, abs=1e-6)
    every = lambda obs, memory: (None, {"pick": (obs["symbol"], obs["bit"]), "move": obs["point"]})  # noqa: E731
    assert score(parts.Parts(), every) == 2
    remembering = lambda obs, memory: (m := int(np.argmax(obs)) if memory is None else memory, m)  # noqa: E731
    assert score(cue.Cue(), remembering) == 1


def test_the_cue_cannot_be_guessed() -> None:
    assert score(cue.Cue(), lambda obs, memory: (None, 2)) == pytest.approx(0.25, abs=0.08)
