"""Tests env.drop, and MiniGrid where it is installed."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.observed.dropped_leaves import without_leaves
from metta_fast.resolve.compose import compose
from metta_fast.vector import make_vector

SPACE = spaces.Dict(
    {
        "mission": spaces.Text(9),
        "x": spaces.Box(0, 1, (2,), np.float32),
        "deep": spaces.Dict({"graph": spaces.Graph(spaces.Box(0, 1, (1,)), None), "y": spaces.Discrete(3)}),
    }
)


class Talks(gymnasium.Env):
    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def _obs(self):
        return {"mission": "go", "x": np.array([0, 1], np.float32), "deep": {"graph": None, "y": 2}}

    def step(self, action):
        return self._obs(), 0.0, False, False, {}


def make(config):
    return lambda index: Talks()


def of_factory(config):
    from metta_fast.envs.python_env import PythonEnvFactory

    return PythonEnvFactory(lambda index: Talks(), drop=["mission", "deep"])


def factory(*words):
    return make_factory(compose(["hardware=cpu", *words]).config.env)


def test_the_policy_does_not_see_them():
    made = factory(f"env={__name__}:make", "env.drop=[mission,deep/graph]")
    assert list(made.spec.obs) == ["deep/y", "x"]
    vec = make_vector(made, 2)
    vec.async_reset(0)
    rows = vec.recv().rows
    np.testing.assert_array_equal(rows.obs["x"], [[0, 1]] * 2)
    np.testing.assert_array_equal(rows.obs["deep/y"], [[0, 0, 1]] * 2)
    vec.close()
    assert list(factory(f"env={__name__}:of_factory").spec.obs) == ["x"]


def test_groups_and_what_may_be_missing():
    assert list(without_leaves(SPACE, ["deep"])) == ["mission", "x"]
    assert list(without_leaves(SPACE, ["deep/graph", "deep/y"])) == ["mission", "x"]
    assert without_leaves(SPACE, [], ["nothing"]) is SPACE
    assert list(without_leaves(SPACE, [], ["nothing", "mission"])) == ["deep", "x"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([f"env={__name__}:make"], "leave it out with env.drop=[deep/graph]"),
        (
            [f"env={__name__}:make", "env.drop=[misson]"],
            "env.drop=[misson]: the observation has no such leaf; did you",
        ),
        ([f"env={__name__}:make", "env.drop=[mission,x,deep]"], "leaves nothing of the observation"),
        ([f"env={__name__}:of_factory", "env.drop=[x]"], "env.drop=[x] has no effect"),
        (["env=CartPole-v1", "env.drop=[x]"], "env.drop=[x]: the observation is Box"),
        (["env=counter", "env.drop=[x]"], "env.drop=[x] has no effect with env.factory=counter"),
        (["env=minigrid"], "env.id=MiniGrid-Empty-5x5-v0"),
    ],
)
def test_mistakes(words, says):
    with pytest.raises(UserError) as error:
        factory(*words)
    assert says in str(error.value)


def test_minigrid():
    pytest.importorskip("minigrid")
    done = compose(["env=MiniGrid-Empty-5x5-v0"])
    assert (done.config.env.factory, done.config.env.name) == ("minigrid", "MiniGrid-Empty-5x5-v0")
    made = make_factory(done.config.env)
    assert {name: leaf.shape for name, leaf in made.spec.obs.items()} == {
        "direction": (4,),
        "image": (7, 7, 3),
    }
    assert made.spec.obs["image"].kind == "symbols"
    assert made.spec.max_steps == 100
    words = ["env=MiniGrid-Empty-5x5-v0", "env.wrappers=[minigrid.wrappers:ImgObsWrapper]"]
    assert list(factory(*words).spec.obs) == ["obs"]
    with pytest.raises(UserError, match=r"env.drop=\[mission\]"):
        factory("env=gymnasium", "env.id=MiniGrid-Empty-5x5-v0")
    assert (
        "mission"
        not in factory("env=gymnasium", "env.id=MiniGrid-Empty-5x5-v0", "env.drop=[mission]").spec.obs
    )
