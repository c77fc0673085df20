"""Robot tasks against Gymnasium's v5 environments: on the same physics, the same observation, reward, end and every
info key, to the bit, over several episodes of random actions and several sets of options.

One exception, on processors where NumPy takes sines and cosines of arrays from vector code of its own: there those
of Reacher and InvertedDoublePendulum may differ from libm's in the last place (`LOOSE`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

from metta_fast.contracts.errors import UserError  # noqa: E402
from metta_fast.envs.robot.tasks.task import Task  # noqa: E402
from tests.c_compiler import CC  # noqa: E402
from tests.robot.rules import Rules  # noqa: E402

pytestmark = pytest.mark.skipif(not CC, reason="compiles the tasks: no C compiler here")

KEEP: dict[str, Any] = {"exclude_current_positions_from_observation": False}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ant": [
        KEEP | {"include_cfrc_ext_in_observation": False, "terminate_when_unhealthy": False, "main_body": 3},
        {"contact_force_range": (-0.3, 2), "contact_cost_weight": 0.1, "healthy_z_range": (0.5, 0.9)},
        {
            "forward_reward_weight": 1.3,
            "ctrl_cost_weight": 0.3,
            "healthy_reward": 0.7,
            "reset_noise_scale": 0.3,
        },
    ],
    "half_cheetah": [KEEP | {"ctrl_cost_weight": 0.7, "frame_skip": 3}, {"forward_reward_weight": 2.3}],
    "hopper": [
        KEEP | {"ctrl_cost_weight": 0.3, "terminate_when_unhealthy": False, "healthy_state_range": (-3, 3)},
        {
            "healthy_z_range": (1.2, 1.3),
            "healthy_angle_range": (-1, 1),
            "healthy_reward": 0.7,
            "frame_skip": 2,
        },
        {"forward_reward_weight": 1.7, "reset_noise_scale": 0.1, "healthy_angle_range": (-0.1, 0.3)},
    ],
    "walker2d": [
        KEEP | {"forward_reward_weight": 1.7, "terminate_when_unhealthy": False, "ctrl_cost_weight": 0.1},
        {"healthy_z_range": (1.0, 1.5), "healthy_angle_range": (-0.1, 0.1), "healthy_reward": 0.3},
    ],
    "swimmer": [KEEP | {"frame_skip": 3, "ctrl_cost_weight": 0.7}, {"forward_reward_weight": 3.1}],
    "reacher": [{"reward_dist_weight": 2.3, "reward_control_weight": 0.1}],
    "pusher": [{"reward_near_weight": 0.7, "reward_dist_weight": 1.9, "reward_control_weight": 0.3}],
    "inverted_pendulum": [{"reset_noise_scale": 0.1, "frame_skip": 1}],
    "inverted_double_pendulum": [{"healthy_reward": 3.3, "reset_noise_scale": 0.02}],
    "humanoid": [
        KEEP | {"contact_cost_range": (0, 1), "contact_cost_weight": 1e-4, "terminate_when_unhealthy": False},
        {"include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False},
        {"include_cvel_in_observation": False, "include_qfrc_actuator_in_observation": False},
        {
            "forward_reward_weight": 1.3,
            "ctrl_cost_weight": 0.3,
            "healthy_reward": 1,
            "healthy_z_range": (1.3, 1.5),
        },
    ],
    "humanoid_standup": [
        KEEP | {"impact_cost_range": (0, 2), "impact_cost_weight": 1e-4, "ctrl_cost_weight": 0.3},
        {"include_cinert_in_observation": False, "include_cvel_in_observation": False, "uph_cost_weight": 2},
    ],
}
LOOSE = ("reacher", "inverted_double_pendulum")
EPISODES, STEPS = 3, 120


def task_of(name: str) -> Task:
    task = importlib.import_module(f"metta_fast.envs.robot.tasks.{name}").TASK
    assert isinstance(task, Task)
    return task


def pair(name: str, options: dict[str, Any]) -> tuple[Any, Rules]:
    """(Gymnasium's environment, our rules on its physics)."""
    task = task_of(name)
    env = gymnasium.make(task.gymnasium_id, **options)
    inner = env.unwrapped
    rest = {key: value for key, value in options.items() if key != "frame_skip"}
    assert inner.frame_skip == options.get("frame_skip", task.frame_skip)
    assert inner.fullpath.endswith(f"/{task.xml}")
    assert env.spec.max_episode_steps == task.max_steps
    return env, Rules(task, rest, inner.model, inner.data, inner.frame_skip)


@functools.cache
def numpy_sines_are_libms() -> bool:
    x = np.linspace(-3, 3, 1000)
    return all(np.sin(x)[i] == np.sin(x[i]) and np.cos(x)[i] == np.cos(x[i]) for i in range(len(x)))


def same_obs(name: str, ours: Any, theirs: Any) -> None:
    if name in LOOSE and not numpy_sines_are_libms():
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-16)
    else:
        np.testing.assert_array_equal(ours, theirs)


def flat(info: dict[str, Any]) -> dict[str, float]:
    """Info without arrays: their elements are name[0], name[1]."""
    out: dict[str, float] = {}
    for key, value in info.items():
        if np.ndim(value):
            out.update({f"{key}[{i}]": float(x) for i, x in enumerate(value)})
        else:
            out[key] = float(value)
    return out


CASES = [(name, options) for name, sets in OPTIONS.items() for options in ({}, *sets)]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_number_of_a_step_is_gymnasiums(name: str, options: dict[str, Any]) -> None:
    env, rules = pair(name, options)
    env.action_space.seed(0)
    ends = 0
    for episode in range(EPISODES):
        theirs, _ = env.reset(seed=episode)
        same_obs(name, rules.observe(), theirs)
        for _ in range(STEPS):
            action = env.action_space.sample()
            rules.before()
            theirs, reward, terminated, truncated, info = env.step(action)
            ours = rules.after(action)
            same_obs(name, rules.observe(), theirs)
            assert ours.reward == reward
            assert ours.terminated == terminated
            assert ours.info == flat(info)
            if terminated or truncated:
                ends += terminated
                break
    never_ends = name in ("half_cheetah", "swimmer", "reacher", "pusher", "humanoid_standup")
    if never_ends or options.get("terminate_when_unhealthy") is False:
        assert ends == 0
    elif not options:
        assert ends > 0 if name == "ant" else ends == EPISODES  # an ant seldom falls so soon


@pytest.mark.parametrize("name", OPTIONS)
def test_defaults_and_observation_size_are_gymnasiums(name: str) -> None:
    task = task_of(name)
    env, rules = pair(name, {})
    assert rules.observe().shape == env.observation_space.shape
    theirs = inspect.signature(type(env.unwrapped).__init__).parameters
    aside = {"self", "xml_file", "frame_skip", "default_camera_config", "kwargs"}
    assert set(task.options) == set(theirs) - aside
    assert {key: theirs[key].default for key in task.options} == dict(task.options)
    assert (theirs["xml_file"].default, theirs["frame_skip"].default) == (task.xml, task.frame_skip)


@pytest.mark.parametrize("name", OPTIONS)
def test_starts_are_in_gymnasiums_range_and_each_env_has_its_own(name: str) -> None:
    env, rules = pair(name, {})
    ours = np.array([np.concatenate(rules.reset(3, i % 20, i // 20)) for i in range(400)])
    inner, theirs = env.unwrapped, []
    for i in range(400):
        env.reset(seed=i)
        theirs.append(np.concatenate((inner.data.qpos, inner.data.qvel)))
    spread = np.std(theirs, axis=0)
    np.testing.assert_array_equal(np.std(ours, axis=0) == 0, spread == 0)
    np.testing.assert_allclose(
        np.mean(ours, axis=0), np.mean(theirs, axis=0), atol=0.3 * spread.max() + 1e-12
    )
    moving = spread > 0
    np.testing.assert_allclose(np.std(ours, axis=0)[moving], spread[moving], rtol=0.25)
    assert len(np.unique(ours[:, moving], axis=0)) == 400
    np.testing.assert_array_equal(np.concatenate(rules.reset(3, 7, 2)), ours[47])


def test_healthy_reward_is_withheld_on_the_step_that_ends() -> None:
    env, rules = pair("hopper", {})
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(200):
        rules.before()
        action = env.action_space.sample()
        env.step(action)
        step = rules.after(action)
        if step.terminated:
            break
    assert step.terminated
    assert step.info["reward_survive"] == 0


def test_contact_forces_are_felt() -> None:
    """They were all zero where mj_rnePostConstraint was left out."""
    env, rules = pair("humanoid", {})
    env.reset(seed=0)
    env.action_space.seed(0)
    contact = []
    for _ in range(60):
        action = env.action_space.sample()
        rules.before()
        env.step(action)
        contact.append(rules.after(action).info["reward_contact"])
    assert min(contact) < 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"healthy_rewards": 1}, "did you mean 'healthy_reward'"),
        ({"healthy_z_range": 1}, "expected a range of two numbers"),
        ({"terminate_when_unhealthy": 1}, "expected true or false"),
        ({"ctrl_cost_weight": "x"}, "expected a number"),
        ({"ctrl_cost_weight": float("nan")}, "expected a number"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_of("hopper").values(options)
