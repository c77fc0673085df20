"""Tests that settings which an environment cannot serve are refused before anything is written, in every backend."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import types
from typing import Any

import gymnasium
import pytest

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.errors import UserError
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.noted_config import note
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import Resolved, resolve
from tests.vector.toy_envs import Walk

BACKENDS = ["serial", "threads", "workers"]


class Endless(Walk):
    """States no time limit."""


class Bare(gymnasium.Env):
    """Has no state."""

    observation_space, action_space = Walk.observation_space, Walk.action_space
    max_steps = 9

    def __init__(self, *_: Any) -> None: ...


@pytest.fixture
def using(monkeypatch):
    """using(make, *words) resolves a training of the environments that make(config) makes."""
    module = types.ModuleType("my_keys")
    monkeypatch.setitem(sys.modules, "my_keys", module)

    def done(make: Any, *words: str) -> Resolved:
        module.make = make  # type: ignore[attr-defined]
        return resolve(
            compose(
                ["env=my_keys:make", "env.step_cost=medium", "env.action_mask=none", "env.num_envs=4", *words]
            )
        )

    return done


def bare(config):
    return Bare


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exact_resume_of_an_environment_without_state_is_refused(using, backend):
    words = ["trainer.deterministic=true", f"vector.backend={backend}"]
    with pytest.raises(
        UserError, match=r"trainer\.deterministic=true: my_keys cannot .*state_dict.*leave trainer\.det"
    ):
        using(bare, *words)
    with pytest.raises(UserError, match=r"trainer\.deterministic=true"):
        using(bare, *words, "env.action_repeat=2")
    using(lambda config: Walk, *words)
    using(lambda config: CounterFactory(), *words)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "env.max_steps=32",
            r"does not read config\.max_steps; pass it on there, .*max_episode_steps.*leave it out",
        ),
        ("env.limit_is_terminal=true", r"does not read config\.limit_is_terminal; give terminated instead"),
        ("env.params.gaol=3", r"does not read config\.params\['gaol'\]; leave it out"),
        ("env.show_viewer=true", "is for environments with a viewer"),
    ],
)
def test_a_key_that_the_function_does_not_read_is_refused(using, backend, word, message):
    with pytest.raises(UserError, match=message) as told:
        using(bare, word, f"vector.backend={backend}")
    assert str(told.value).startswith(word)
    assert "\n" not in str(told.value)


def test_a_slip_in_a_key_of_ones_own_names_the_nearest(using):
    def make(config):
        goal = config.params.get("goal", 3)
        return lambda index: Bare(goal)

    using(make, "env.params.goal=4")
    with pytest.raises(UserError, match=r"env\.params\.gaol=3 has no effect: .*did you mean 'goal'\?"):
        using(make, "env.params.goal=4", "env.params.gaol=3")


def test_threads_in_workers_are_refused_for_python_environments(using):
    with pytest.raises(
        UserError, match=r"vector\.num_threads=3 has no effect: a worker steps Python environments"
    ):
        using(bare, "vector.backend=workers", "vector.num_threads=3")


class Holds(Bare):
    def __init__(self, config: Any) -> None:
        self.config = config


@pytest.mark.parametrize(
    "make",
    [
        lambda config: lambda index: Bare(config.max_steps, config.limit_is_terminal, config.params["goal"]),
        lambda config: lambda index: Holds(config),
        lambda config: PythonEnvFactory(lambda index: Holds(config)),
        lambda config: (lambda **keys: Bare)(**dataclasses.asdict(config)),
        lambda config: (lambda keys: Bare)(vars(config)["params"]["goal"]),
        lambda config: (lambda keys: Bare)(copy.deepcopy(config)),
    ],
)
def test_keys_that_are_read_or_may_be_read_later_are_accepted(using, make):
    using(make, "env.max_steps=32", "env.limit_is_terminal=true", "env.params.goal=3")


def test_the_length_to_assume_is_accepted_where_the_environment_states_none(using):
    using(lambda config: Endless, "env.max_steps=32")


@pytest.mark.parametrize(
    "read",
    [
        lambda params: {**params},
        lambda params: dict(params),
        lambda params: list(params),
        lambda params: params | {},
        lambda params: {} | params,
        lambda params: params == {"a": 1},
        lambda params: (lambda **keys: keys)(**params),
        lambda params: pickle.loads(pickle.dumps(params)),
        lambda params: [value for _, value in params.items()],
    ],
)
def test_reading_params_as_a_whole_reads_every_key(read):
    noted, unread = note(EnvConfig(params={"a": 1, "b": 2}))
    read(noted.params)
    del noted
    assert unread() == {"env.max_steps", "env.limit_is_terminal"}
