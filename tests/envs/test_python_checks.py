"""Tests the messages for what is no environment, or an environment of another kind than ours."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector

BOX = spaces.Box(-1, 1, (2,), np.float32)


class Good(gymnasium.Env):
    observation_space, action_space = BOX, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Parallel:
    """The beginning of a ParallelEnv of PettingZoo."""

    possible_agents = ("a", "b")
    num_agents = 2

    def observation_space(self, agent: str) -> Any:
        return BOX


class Puffer:
    num_agents = 2
    single_observation_space, single_action_space = BOX, spaces.Discrete(2)


Puffer.__module__ = "pufferlib.environment"


class StableVec:
    observation_space, action_space, num_envs = BOX, spaces.Discrete(2), 4

    def step_async(self, actions: Any) -> None: ...

    def step_wait(self) -> None: ...


class Unseeded(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2, np.float32)


class OldSpace:
    pass


OldSpace.__module__ = "gym.spaces"


class Old(Good):
    action_space = OldSpace()  # type: ignore[assignment]


class DeepMind:
    def action_spec(self) -> None: ...

    def observation_spec(self) -> None: ...


class Spaceless(Good):
    action_space = None  # type: ignore[assignment]


def vectors() -> Any:
    return gymnasium.make_vec("CartPole-v1", num_envs=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: None, "is None: the maker must return an environment"),
        (
            lambda: Good,
            r"is the class Good, not an environment: the maker must call it, as in lambda index: Good\(\)",
        ),
        (lambda: lambda: Good(), "is a function, not an environment"),
        (
            vectors,
            r"is the vector environment \w+: return it from make.*gymnasium\.make, .*env\.num_envs",
        ),
        (StableVec, "is the vector environment StableVec, which is not supported"),
        (
            Parallel,
            r"is Parallel without action_space\(\) and reset\(\) and step\(\), so neither a ParallelEnv",
        ),
        (Puffer, "is the PufferEnv Puffer: type env=pufferlib env.factory=module:make"),
        (DeepMind, "is the dm_env environment DeepMind, .*shimmy"),
        (Old, "is Old with spaces of the package gym, which Gymnasium has replaced: .*shimmy"),
        (
            Unseeded,
            r"is Unseeded, whose reset takes no seed: write reset\(self, \*, seed=None, options=None\)",
        ),
        (Spaceless, "is Spaceless without action_space: expected Gymnasium's API"),
        (object, "is object without observation_space and action_space and reset and step"),
    ],
)
def test_what_is_no_environment_is_named_with_the_cure(given, message):
    with pytest.raises(EnvError, match=f"environment 0 {message}"):
        PythonEnvFactory(lambda index: given())


@pytest.fixture
def module(monkeypatch):
    """A function that makes `name` of the module my_envs."""
    found = types.ModuleType("my_envs")
    monkeypatch.setitem(sys.modules, "my_envs", found)
    return lambda function: setattr(found, "make", function)


def made(num_envs: int = 2) -> Any:
    return make_factory(EnvConfig(name="mine", factory="my_envs:make", num_envs=num_envs, agents_per_env=1))


def quits(config):
    sys.exit(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: None, r"<lambda>\(\) cannot be called with one argument: expected make\(config\)"),
        (
            lambda config, index: None,
            r"\(config, index\) cannot be called with one argument: expected make\(config\)",
        ),
        (
            lambda config: lambda: Good(),
            "a maker of environments that does not fit: .* expected a function of the env",
        ),
        (lambda config: Good(), "gave the environment Good itself: return a maker of environments"),
        (lambda config: None, "gave NoneType, expected an EnvFactory or a callable .* return a maker"),
        (lambda config: lambda index: None, "environment 0 is None"),
        (
            lambda config: PythonEnvFactory(lambda index: None),
            r"env\.factory=my_envs:make: environment 0 is None",
        ),
        (quits, r"quits\(config\) failed: SystemExit: 0 \(.*test_python_checks\.py:\d+\)"),
    ],
)
def test_a_function_that_does_not_fit_is_named_with_what_is_expected(module, make, message):
    module(make)
    with pytest.raises(UserError, match=message):
        made()


def test_a_script_that_exits_at_its_import_is_named(tmp_path, monkeypatch):
    (tmp_path / "my_script.py").write_text("import sys\nsys.exit('usage: my_script')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=r"my_script cannot be imported: SystemExit: usage: my_script \(.*my_script"
    ):
        make_factory(EnvConfig(name="mine", factory="my_script:make"))


# ── Gym's old API ──


def step(vec):
    vec.send(vec.recv())
    vec.recv()


@pytest.mark.parametrize(
    ("reset", "stepped", "message"),
    [
        (
            np.zeros(2, np.float32),
            None,
            r"reset\(\) gave ndarray alone, expected \(observation, info\); .* before 0\.26",
        ),
        ((np.zeros(2), {}, 0), None, r"reset\(\) gave tuple of 3, expected \(observation, info\)"),
        ((np.zeros(2), np.zeros(2)), None, r"reset\(\) gave tuple of 2, expected \(observation, info\)"),
        (
            None,
            (np.zeros(2, np.float32), 1.0, False, {}),
            r"step\(\) gave tuple of 4, .* before 0\.26\. .*shimmy",
        ),
        (None, "nothing", r"step\(\) gave str alone, expected \(obs, reward, terminated, truncated, info\)"),
    ],
)
def test_the_old_api_is_named_with_the_cure(reset, stepped, message):
    class Aged(Good):
        def reset(self, *, seed=None, options=None):
            return super().reset() if reset is None else reset

        def step(self, action):
            return super().step(action) if stepped is None else stepped

    vec = make_vector(PythonEnvFactory(lambda index: Aged()), 1)
    vec.async_reset(0)
    with pytest.raises(RuntimeError, match=f"environment 0 gave a wrong value: {message}"):
        step(vec)


# ── one agent or several ──


class Crowd:
    """Three agents."""

    num_agents = 3
    observation_space, action_space = BOX, spaces.Discrete(2)
    spec = render_mode = None
    metadata: dict[str, Any] = {}  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((3, 2), np.float32), {}

    def step(self, actions: Any) -> Any:
        assert actions.shape == (3, 1)
        no = np.zeros(3, bool)
        return np.zeros((3, 2), np.float32), np.arange(3.0), no, no, {}


class GymCrowd(Crowd, gymnasium.Env):
    spec = None


@pytest.mark.parametrize("count", [1, 2, 7, -1, "two", None])
@pytest.mark.parametrize("wrap", [False, True])
def test_an_attribute_num_agents_does_not_make_several_agents_of_one(count, wrap):
    class Opponents(Good):
        num_agents = count

    factory = PythonEnvFactory(
        lambda index: gymnasium.wrappers.TimeLimit(Opponents(), 5) if wrap else Opponents()
    )
    assert (factory.spec.agents_per_env, factory.several) == (1, False)
    with make_vector(factory, 2) as vec:
        vec.async_reset(0)
        vec.send(vec.recv())
        assert vec.recv().rows.reward.tolist() == [1.0, 1.0]


def test_several_agents_in_a_wrapper_are_several():
    factory = PythonEnvFactory(lambda index: gymnasium.wrappers.TimeLimit(GymCrowd(), 2))
    assert factory.spec.agents_per_env == 3
    with make_vector(factory, 1) as vec:
        vec.async_reset(0)
        for _ in range(2):
            vec.send(vec.recv())
        rows = vec.recv().rows
        assert rows.reward.tolist() == [0.0, 1.0, 2.0]
        assert rows.truncation.all()


def test_a_wrapper_for_one_agent_around_several_is_named():
    class Sums(gymnasium.Wrapper):
        def step(self, action):
            obs, reward, terminal, truncation, info = super().step(action)
            return obs, reward, bool(terminal or truncation), False, info

    vec = make_vector(PythonEnvFactory(lambda index: Sums(GymCrowd())), 1)
    vec.async_reset(0)
    with pytest.raises(
        RuntimeError, match=r"environment 0 raised ValueError: .*perhaps Sums is a wrapper for one agent"
    ):
        step(vec)


# ── spaces ──


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_an_empty_box_is_refused(shape):
    class Empty(Good):
        observation_space = spaces.Dict(a=BOX, b=spaces.Box(0, 1, shape, np.float32))

    class Idle(Good):
        action_space = spaces.Box(0, 1, shape, np.float32)

    with pytest.raises(
        UserError, match=r"observation 'b' has shape .* holds no numbers: leave it out of the obs"
    ):
        PythonEnvFactory(lambda index: Empty())
    with pytest.raises(UserError, match=r"action space .* there is nothing to choose"):
        PythonEnvFactory(lambda index: Idle())


# ── closing ──


def test_an_environment_that_cannot_be_closed_can_be_played(caplog):
    class Unclosable(Good):
        def close(self):
            raise AttributeError("no viewer")

    factory = PythonEnvFactory(lambda index: Unclosable())
    assert "environment 0: close() raised AttributeError: no viewer" in caplog.text
    assert factory.spec.agents_per_env == 1


def test_an_environment_needs_no_close():
    assert not hasattr(Crowd, "close")
    make_vector(PythonEnvFactory(lambda index: Crowd()), 2).close()
