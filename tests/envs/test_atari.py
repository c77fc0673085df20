"""Tests env=atari: frames, rewards and ends of Gymnasium's AtariPreprocessing, lives, scores, states, mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from metta_fast.config.gymnasium_id import recipe_of
from metta_fast.contracts.env_answers import advice
from metta_fast.contracts.errors import UserError
from metta_fast.envs import is_ours, make_factory
from metta_fast.envs.adapters.atari_game import AtariGame, Preprocess
from metta_fast.resolve.compose import compose

SHORT = 800
"""Steps in which Breakout, played at random, ends some games."""


def factory(*words: str) -> Any:
    return make_factory(compose(["env=atari", *words, "hardware=cpu"]).config.env)


def refused(*words: str) -> str:
    with pytest.raises(UserError) as error:
        factory(*words)
    assert "\n" not in str(error.value)
    return str(error.value)


def raw(**kwargs: Any) -> Any:
    ale = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale)
    return gymnasium.make(
        "ALE/Breakout-v5", frameskip=1, obs_type="grayscale", disable_env_checker=True, **kwargs
    )


def played(env: Any, steps: int, seed: int = 0) -> Iterator[tuple[Any, float, bool, bool, dict[str, Any]]]:
    """(obs, reward, terminated, truncated, info) of random actions; an episode's end is followed by a reset."""
    draw = np.random.default_rng(seed)
    obs, info = env.reset(seed=5)
    yield obs, 0.0, False, False, info
    for action in draw.integers(0, env.action_space.n, steps):
        step = env.step(int(action))
        yield step
        if step[2] or step[3]:
            obs, info = env.reset()
            yield obs, 0.0, False, False, info


@pytest.mark.parametrize("skip", [4, 1])
def test_frames_rewards_and_ends_are_those_of_gymnasium(skip: int) -> None:
    pytest.importorskip("cv2")
    from gymnasium.wrappers import AtariPreprocessing

    mine, other = Preprocess(skip=skip)(raw()), AtariPreprocessing(raw(), noop_max=0, frame_skip=skip)
    games = 0
    for one, two in zip(played(mine, 300 * 4 // skip), played(other, 300 * 4 // skip)):
        assert one[1:4] == two[1:4]
        games += one[2]
        if not one[2]:  # where a game ends within a step, Gymnasium shows frames of the step before
            assert np.abs(one[0][..., 0].astype(int) - two[0]).max() <= 1
    assert games


def test_a_lost_life_ends_an_episode_and_the_games_score_is_whole() -> None:
    whole, lives = [], []
    for step in played(Preprocess()(raw()), SHORT):
        whole.append((step[1], step[2]))
    lost, scores, total = 0, [], 0.0
    for step in played(Preprocess(episodic_life=True, clip_reward=True)(raw()), SHORT):
        lives.append(step)
        lost += step[2]
        total += step[1]
        if "score" in step[4]:
            scores.append((step[4]["score"], total))
            total = 0.0
    games = sum(ended for _, ended in whole)
    assert games >= 2
    assert lost >= 4 * games
    assert {np.sign(step[1]) == step[1] for step in lives} == {True}
    assert scores
    assert all(score >= clipped for score, clipped in scores)


def test_the_score_is_the_sum_of_the_rewards_of_whole_games() -> None:
    total, scores = 0.0, []
    for _, reward, ended, _, info in played(Preprocess()(raw()), SHORT):
        total += reward
        if ended:
            scores.append(info["score"] == total)
            total = 0.0
    assert len(scores) >= 2
    assert all(scores)


def test_the_limit_truncates_and_waiting_depends_on_seed_and_game() -> None:
    env = Preprocess(max_frames=40, noop_max=30)(
        raw(max_num_frames_per_episode=40, repeat_action_probability=0.0)
    )
    ends = [step[3] for step in played(env, 40)]
    assert any(ends)
    assert env.max_steps == 10
    first, again = env.reset(seed=3)[0], env.reset(seed=3)[0]
    assert np.array_equal(first, again)
    starts = []
    for _ in range(6):
        env.reset()
        starts.append(env.ale.getEpisodeFrameNumber())
    assert len(set(starts)) > 1
    assert max(starts) <= 30


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    settings = Preprocess(episodic_life=True)
    one, two = settings(raw()), settings(raw())
    for _ in played(one, 200):
        pass
    two.load_state_dict(one.state_dict())
    draw = np.random.default_rng(4)
    for action in draw.integers(0, 4, 300):
        steps = [env.step(int(action)) for env in (one, two)]
        assert np.array_equal(steps[0][0], steps[1][0])
        assert steps[0][1:] == steps[1][1:]
        if steps[0][2] or steps[0][3]:
            assert np.array_equal(one.reset()[0], two.reset()[0])


def test_what_the_words_make() -> None:
    pytest.importorskip("ale_py")
    made = factory("env.id=ALE/Pong-v5", "env.params.noop_max=3")
    assert made.spec.obs["obs"].shape == (84, 84, 1)
    assert made.spec.obs["obs"].kind == "image"
    assert made.spec.action.nvec == (6,)
    assert made.spec.max_steps == 27_000
    assert made.spec.cheap_state
    env = made.make_env(0)
    assert isinstance(env, AtariGame)
    assert env.settings == Preprocess(noop_max=3)
    assert env.ale.getFloat("repeat_action_probability") == 0.25
    old = factory("env.id=PongNoFrameskip-v4", "env.params.full_actions=true").make_env(0)
    assert old.ale.getFloat("repeat_action_probability") == 0.0
    assert old.action_space.n == 18
    assert factory("env.id=Pong", "env.params.sticky=0.5").make_env(0).ale.getFloat(
        "repeat_action_probability"
    ) == 0.5  # fmt: skip
    assert recipe_of("PongNoFrameskip-v4") == "atari"
    config = compose(["env=atari", "env.id=ALE/Pong-v5"]).config
    assert (config.policy.frame_stack, config.env.name) == (4, "ALE-Pong-v5")
    assert not is_ours(config.env)


def test_the_plain_id_names_this_one() -> None:
    pytest.importorskip("ale_py")
    made = make_factory(compose(["env=ALE/Pong-v5", "hardware=cpu"]).config.env)
    assert made.spec.obs["obs"].shape == (210, 160, 3)
    assert "env=atari env.id=ALE/Pong-v5" in advice(made)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("env.params.stikcy=0", "did you mean 'sticky'"),
        ("env.params.sticky=1", "a probability from 0 to below 1"),
        ("env.params.skip=0", "a whole number from 1 to 60"),
        ("env.params.clip_reward=3", "true or false"),
        ("env.kwargs.frameskip=3", "give env.params.skip"),
        ("env.kwargs.obs_type=ram", "leave it out, or give env=ALE/Pong-v5"),
    ],
)
def test_mistakes_are_named(word: str, told: str) -> None:
    message = refused("env.id=ALE/Pong-v5", word)
    assert told in message
    assert word.partition("=")[0] in message


def test_ids_of_other_kinds_are_refused() -> None:
    pytest.importorskip("ale_py")
    assert "did you mean 'ALE/Pong-v5'?" in refused("env.id=ALE/Pongg-v5")
    assert refused("env.id=CartPole-v1").startswith(
        "env.id=CartPole-v1 is no game of ALE; give env=CartPole-v1"
    )
    assert "for example env=atari env.id=ALE/Pong-v5" in refused()
