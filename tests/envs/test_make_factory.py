"""Tests which factory `env.factory` selects, and the counter environment."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.counter import CounterFactory
from metta_fast.vector import make_vector

MODULE = """
import gymnasium
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.python_env import PythonEnvFactory

def gym_envs(config):
    return lambda index: gymnasium.make("CartPole-v1", max_episode_steps=config.params.get("limit"))

def factory(config):
    return CounterFactory(goal=3)

class OldCounterFactory(CounterFactory):
    def make_batch(self, first_env, num_envs): ...

def of_old(config):
    return OldCounterFactory()

def nothing(config):
    return None

def throws(config):
    raise RuntimeError("no licence")

def env_throws(config):
    return lambda index: open("/no/such/file")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_envs.py").write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("import not_there_at_all\n")
    (tmp_path / "my_slip.py").write_text("def make(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("my_envs", "my_broken", "my_slip"):
        sys.modules.pop(name, None)


def config(factory, **keys):
    return EnvConfig(
        name="mine", factory=factory, num_envs=6, agents_per_env=keys.pop("agents_per_env", 1), **keys
    )


def test_known_names():
    counter = make_factory(config("counter", agents_per_env=3, max_steps=9, params={"goal": 4}))
    assert (counter.spec.name, counter.spec.agents_per_env, counter.spec.max_steps, counter.goal) == (
        "counter",
        3,
        9,
        4,
    )
    grid = make_factory(
        config(
            "grid",
            agents_per_env=2,
            observation="tokens",
            max_steps=50,
            params={"room_size": [8, 8], "objects": {"altar": 1}},
        ),
    )
    assert grid.spec.agents_per_env == 2
    assert grid.spec.obs["obs"].shape == (200, 3)
    assert grid.spec.max_steps == 50


@pytest.mark.usefixtures("module")
def test_your_own():
    spec = make_factory(config("my_envs:gym_envs", params={"limit": 30})).spec
    assert (spec.name, spec.agents_per_env, spec.max_steps) == ("mine", 1, 30)
    assert make_factory(config("my_envs:factory")).goal == 3


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("gird", "did you mean 'grid'"),
        ("counter", "env.params.gaol: counter has no such key; did you mean 'goal'"),
        ("nowhere.at_all:make", "no module 'nowhere'"),
        ("my_envs:gym_env", "did you mean 'gym_envs'"),
        ("my_envs:of_old", r"OldCounterFactory\.make_batch\(first_env, num_envs, total_envs\)"),
        ("my_envs:nothing", "gave NoneType"),
        ("my_envs:throws", r"throws\(config\) failed: RuntimeError: no licence \(.*my_envs\.py:\d+\)"),
        (
            "my_envs:env_throws",
            r"environment 0 could not be made: FileNotFoundError: .* \(.*my_envs\.py:\d+\)",
        ),
        ("my_broken:make", r"my_broken cannot be imported: ModuleNotFoundError: .*not_there_at_all.*:1\)"),
        ("my_slip:make", r"my_slip cannot be imported: SyntaxError: .*my_slip\.py, line 1"),
        (":make", "expected package.module:function"),
        ("my_envs:", "expected package.module:function"),
        (".:make", "expected package.module:function"),
    ],
)
def test_mistakes_are_named(factory, message):
    with pytest.raises(UserError, match=message):
        make_factory(config(factory, params={"gaol": 3}))
    with pytest.raises(UserError, match=r"env\.params\.max_steps is set; give env\.max_steps"):
        make_factory(config("counter", params={"max_steps": 3}))


def test_mistakes_in_the_grids_keys_are_named_as_they_are_typed():
    def grid(**params):
        make_factory(config("grid", observation="compact", params=params))

    with pytest.raises(
        UserError, match=r"env\.params\.room_sise: grid has no such key; did you mean 'room_size'"
    ):
        grid(room_sise=[4, 4])
    with pytest.raises(
        UserError, match=r"do not fit .* room_size larger.* env\.params\.…; .*env\.agents_per_env"
    ):
        grid(room_size=[2, 2])


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("limit_is_terminal", [False, True])
def test_the_counter_rewards_the_right_choice(dtype, limit_is_terminal):
    """Against rules written out in plain Python."""
    factory = CounterFactory(
        agents_per_env=2, max_steps=7, goal=3, dtype=dtype, limit_is_terminal=limit_is_terminal
    )
    vec = make_vector(factory, 5, num_blocks=2)
    vec.async_reset(1)
    vec.hold_all()
    rng = np.random.default_rng(0)
    scale = 3 if dtype == "float32" else 1
    starts = set()
    for t in range(40):
        count = np.rint(vec.rows.obs["obs"][:, 0] * scale).astype(int)
        done, first = t % 8 == 7, t % 8 == 0
        assert (vec.rows.mask == (not done)).all()
        assert (vec.rows.reset == first).all()
        assert (vec.rows.truncation == (done and not limit_is_terminal)).all()
        assert (vec.rows.terminal == (done and limit_is_terminal)).all()
        if first:
            starts.update(count.tolist())
            right = np.zeros(10)
            assert (vec.rows.reward == 0).all()
        if done:
            assert (vec.rows.stats[:, 0] == right).all()
        action = rng.integers(0, 2, (10, 1), dtype=np.int32)
        for block in vec.blocks:
            vec.send(block, action[block.start : block.stop])
        vec.hold_all()
        if not done:
            reward = (action[:, 0] == 1) == (count < 3)
            right += reward
            assert (vec.rows.reward == reward).all()
            count += action[:, 0]
            assert (np.rint(vec.rows.obs["obs"][:, 0] * scale) == np.where(count > 3, 0, count)).all()
    assert starts == {0, 1, 2, 3}


def test_a_wrong_counter_is_refused():
    for keys in ({"goal": 0}, {"dtype": "int64"}, {"max_steps": 0}):
        with pytest.raises(UserError, match=f"counter: {next(iter(keys))}="):
            CounterFactory(**keys)
