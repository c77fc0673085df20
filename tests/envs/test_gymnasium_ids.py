"""Tests environments of Gymnasium's registry by their id: what `env=…` means, arguments, wrappers, mistakes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest

from metta_fast.cli import main
from metta_fast.config.gymnasium_id import folder_name, is_gymnasium_id
from metta_fast.config.trust import Named, code_named, typed_code
from metta_fast.contracts.errors import UserError
from metta_fast.envs import is_ours, make_factory
from metta_fast.envs.python_env import env_seed
from metta_fast.resolve.compose import compose
from metta_fast.vector import make_vector
from tests.tiny import QUIET, named

SHORT = (*QUIET, "env.num_envs=2", "trainer.total_timesteps=64", "trainer.batch_size=32", "trainer.minibatch_size=32",
         "trainer.bptt_horizon=16", "env.step_cost=cheap", "env.action_mask=none")  # fmt: skip
MODULE = """
import gymnasium
import numpy as np

class Scaled(gymnasium.ObservationWrapper):
    def observation(self, obs):
        return obs * np.float32(0.5)

class Corner(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, size=3, render_mode=None):
        self.size = size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.at += int(action)
        return np.array([self.at], np.float32), 1.0, self.at >= self.size, False, {}

def count(env):
    return 3

def class_itself(env):
    return Scaled

def two(env, more):
    return env

gymnasium.register("Corner-v0", entry_point=Corner, max_episode_steps=8)
gymnasium.register("Named", entry_point="my_corner:Corner", max_episode_steps=8)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_corner.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("my_corner", None)
    for name in ("Corner-v0", "Named"):
        gymnasium.registry.pop(name, None)


def factory(*words):
    return make_factory(compose([*words, "hardware=cpu"]).config.env)


def refused(*words):
    with pytest.raises(UserError) as error:
        factory(*words)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("CartPole-v1", True),
        ("ALE/Breakout-v5", True),
        ("ALE/Breakout", True),
        ("MiniGrid-Empty-5x5-v0", True),
        ("my_package.envs:MyEnv-v0", True),
        ("my_package:space/MyEnv", True),
        ("my_module:make", False),
        ("my.module:make_v1", False),
        ("butterfly/pistonball_v6", True),
        ("my_package:family/game_v0", True),
        ("pettingzoo.butterfly.pistonball_v6", True),
        ("my_package.my_game_v0", False),
        ("my.py:make", False),
        ("CartPole", False),
        ("../env/grid", False),
        ("a:b:c", False),
        (":", False),
        ("", False),
    ],
)
def test_which_words_are_ids(text, is_id):
    assert is_gymnasium_id(text) is is_id


def test_what_an_id_sets():
    done = compose(["env=CartPole-v1"])
    assert (done.config.env.factory, done.config.env.id, done.config.env.name) == (
        "gymnasium", "CartPole-v1", "CartPole-v1"
    )  # fmt: skip
    assert done.origins["env.name"] == "named after env.id"
    assert done.typed("env.id")
    assert not is_ours(done.config.env)
    assert compose(["env=gymnasium", "env.id=Acrobot-v1"]).config.env.name == "Acrobot-v1"
    assert compose(["env=ALE/Breakout-v5"]).config.env.name == "ALE-Breakout-v5"
    assert compose(["env=CartPole-v1", "env.name=mine"]).config.env.name == "mine"
    assert compose(["env=grid"]).config.env.id is None
    assert folder_name("my_package:a b/c-v0") == "a-b-c-v0"


def test_what_an_id_of_pettingzoo_sets():
    done = compose(["env=pettingzoo.butterfly.pistonball_v6"]).config.env
    assert (done.factory, done.id) == ("pettingzoo", "pettingzoo.butterfly.pistonball_v6")
    assert done.name == "butterfly-pistonball_v6"
    assert compose(["env=butterfly/pistonball_v6"]).config.env.factory == "pettingzoo"
    assert compose(["env=ALE/Pong-v5"]).config.env.factory == "gymnasium"


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("my_package.my_game_v0", "my_package.my_game_v0"),
        ("my_package:family/game_v0", "my_package"),
        ("pettingzoo.butterfly.pistonball_v6", None),
        ("butterfly/pistonball_v6", None),
        ("CartPole-v1", None),
    ],
)
def test_a_module_in_an_id_is_code_that_a_stranger_may_have_named(text, module):
    found = code_named({"env": {"id": text}})
    assert [named.module for named in found] == ([] if module is None else [module])


def test_a_recipe_of_this_name_comes_first(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "CartPole-v1.yaml").write_text(
        "# @package _global_\nenv: {name: mine, factory: counter}\n"
    )
    done = compose(["env=CartPole-v1", "--config-dir", str(tmp_path)])
    assert (done.config.env.name, done.config.env.factory) == ("mine", "counter")


def test_composing_an_id_imports_no_gymnasium():
    code = (
        "import sys; from metta_fast.resolve.compose import compose; compose(['env=CartPole-v1', 'hardware=cpu']); "
        "print('gymnasium' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


@pytest.mark.parametrize("id", ["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0"])
def test_it_steps_as_gymnasium_does(id):
    made, own = factory(f"env={id}"), gymnasium.make(id)
    assert (made.spec.max_steps, made.spec.reward_threshold) == (
        own.spec.max_episode_steps, own.spec.reward_threshold
    )  # fmt: skip
    vec = make_vector(made, 1)
    vec.async_reset(7)
    rows, ended = vec.rows, False
    obs, _ = own.reset(seed=env_seed(7, 0))
    own.action_space.seed(3)
    for _ in range(300):
        block = vec.recv()
        np.testing.assert_array_equal(rows.obs["obs"][0], obs)
        action = own.action_space.sample()
        vec.send(block, np.reshape(action, (1, -1)))
        block = vec.recv()
        if ended:
            obs, _ = own.reset()
            ended = False
            assert rows.reset[0]
        else:
            obs, reward, terminal, truncation, _ = own.step(action)
            ended = terminal or truncation
            assert rows.reward[0] == np.float32(reward)
            assert (rows.terminal[0], rows.truncation[0]) == (terminal, truncation)
        np.testing.assert_array_equal(rows.obs["obs"][0], obs)
        vec.send(block, np.reshape(action, (1, -1)))
        if ended:
            obs, _ = own.reset()
            ended = False
        else:
            obs, _, terminal, truncation, _ = own.step(action)
            ended = terminal or truncation
    vec.close()


def test_arguments_reach_the_constructor(module):
    made = factory(
        "env=my_corner:Corner-v0", "env.kwargs.size=5", "env.kwargs.max_episode_steps=4",
        "env.wrappers=[my_corner:Scaled,gymnasium.wrappers:FlattenObservation]",
    )  # fmt: skip
    assert (made.spec.name, made.spec.max_steps) == ("Corner-v0", 4)
    env = cloudpickle.loads(cloudpickle.dumps(made)).make_env(0)
    assert env.unwrapped.size == 5
    assert [type(layer).__name__ for layer in (env, env.env)] == ["FlattenObservation", "Scaled"]
    env.reset(seed=0)
    assert env.step(1)[0] == 0.5
    assert factory("env=gymnasium", "env.id=my_corner:Named").spec.max_steps == 8


def test_workers_train_a_package_of_the_folder(module):
    """In a process of its own: workers get the id's entry, not this registry."""
    words = ["env=my_corner:Corner-v0", "env.wrappers=[my_corner:Scaled]", "vector.backend=workers",
             "vector.num_workers=2", *SHORT, *named(module)]  # fmt: skip
    assert main(["train", *words]) == 0
    run = module / "r"
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert main(["train", *SHORT[:4], f"resume={run}", "trainer.total_timesteps=128"]) == 0


def test_a_strangers_run_names_its_packages_and_wrappers(module, monkeypatch, capsys):
    words = ["env=my_corner:Corner-v0", "env.wrappers=[my_corner:Scaled]", "vector.backend=serial"]
    assert main(["train", *words, *SHORT, *named(module)]) == 0
    config = json.loads(next((module / "r" / "checkpoints").glob("step_*/meta.json")).read_text())["config"]
    assert code_named(config) == [
        Named("env.id", "my_corner:Corner-v0"), Named("env.wrappers", "my_corner:Scaled")
    ]  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(module / "other"))
    sys.modules.pop("my_corner")
    gymnasium.registry.pop("Corner-v0")
    capsys.readouterr()
    assert main(["eval", str(module / "r"), "--episodes", "2"]) == 2
    said = capsys.readouterr().err
    assert "type env=my_corner:Corner-v0 env.wrappers=my_corner:Scaled as well" in said
    assert "my_corner" not in sys.modules
    assert main(["eval", str(module / "r"), "--episodes", "2", "env=my_corner:Corner-v0"]) == 2
    assert "my_corner" not in sys.modules
    assert "names code that would be imported, env.wrappers=my_corner:Scaled" in capsys.readouterr().err
    typed = ["env=my_corner:Corner-v0", "env.wrappers=[my_corner:Scaled]"]
    assert main(["eval", str(module / "r"), "--episodes", "2", *typed]) == 0


def test_an_id_without_a_package_names_no_code():
    assert code_named({"env": {"factory": "gymnasium", "id": "Some1.5-v0", "wrappers": ["a.b"]}}) == [
        Named("env.wrappers", "a.b")
    ]
    assert typed_code(["env.wrappers=[a:b,c:d]"]) == {
        Named("env.wrappers", "a:b"),
        Named("env.wrappers", "c:d"),
    }


def test_resume_keeps_the_id(tmp_path, capsys):
    words = [*SHORT, "vector.backend=serial"]
    assert main(["train", "env=CartPole-v1", *words, *named(tmp_path)]) == 0
    assert main(["train", f"resume={tmp_path / 'r'}", "env=Acrobot-v1", *words[:4]]) == 2
    assert "CartPole-v1" in capsys.readouterr().err
    assert main(["train", f"resume={tmp_path / 'r'}", "env.kwargs.sutton_barto_reward=true", *words[:4]]) == 2
    more = ["env=CartPole-v1", "trainer.total_timesteps=128"]
    assert main(["train", f"resume={tmp_path / 'r'}", *more, *words[:4]]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["env=CartPol-v1"], r"env.id=CartPol-v1: .* did you mean 'CartPole-v1'?"),
        (["env=CartPole-v7"], "did you mean 'CartPole-v1'?"),
        (["env=CartPole"], "unknown env 'CartPole'; did you mean 'env=CartPole-v1'?"),
        (["env=gymnasium"], "env=gymnasium needs the environment's id"),
        (["env=nonesuch_package:My-v0"], "there is no module 'nonesuch_package'"),
        (["env=json:My-v0"], "env.id=json:My-v0: Gymnasium has no such environment"),
        (["env=CartPole-v1", "env.kwargs.gravity=3"], "env.kwargs.gravity: unknown key; it has sutton_barto_reward"),
        (["env=CartPole-v1", "env.kwargs.max_episode_steps=0"], "expected a whole number of steps"),
        (["env=CartPole-v1", "env.wrappers=[nonesuch]"], "env.wrappers=nonesuch"),
        (["env=CartPole-v1", "env.wrappers=[os:sep]"], "env.wrappers=os:sep"),
        (["env=CartPole-v1", "env.wrappers=[my_corner:count]"], "my_corner:count is called with the environment"),
        (["env=CartPole-v1", "env.wrappers=[my_corner:class_itself]"], "what it returned is the class Scaled"),
        (["env=CartPole-v1", "env.wrappers=[my_corner:two]"], "a wrapper is called with the environment alone"),
        (["env=CartPole-v1", "env.wrappers=my_corner:two"], "env.wrappers"),
        (["env=CartPole-v1", "env.params.gravity=3"], "arguments of the environment are env.kwargs.gravity=…"),
        (["env=counter", "env.kwargs.goal=3"], "env.kwargs={goal: 3} has no effect with env.factory=counter"),
        (["env=counter", "env.wrappers=[a:b]"], "env.wrappers=[a:b] has no effect"),
        (["env=grid", "env.id=CartPole-v1"], "env.id=CartPole-v1 has no effect with env.factory=grid"),
    ],
)  # fmt: skip
def test_mistakes(module, words, says):
    assert says.split(".* ")[-1] in refused(*words)


def test_time_limits_are_arguments(capsys):
    assert main(["train", "env=CartPole-v1", "env.max_steps=30", *SHORT]) == 2
    assert (
        "env.max_steps=30 has no effect on CartPole-v1; give env.kwargs.max_episode_steps"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("id", "module", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("ALE/Pong-v5", "ale_py", "atari"),
     ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
     ("Ant-v5", "mujoco", "robots")],
)  # fmt: skip
def test_a_missing_package_names_its_command(id, module, extra, monkeypatch):
    if id != "Ant-v5" and importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mujoco" or "envs.mujoco" in name]:
        monkeypatch.delitem(sys.modules, name)
    if id == "Ant-v5":
        monkeypatch.setitem(sys.modules, module, None)
    said = refused(f"env={id}")
    assert f"env.id={id} needs" in said
    assert f"[{extra}]" in said


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("gymnasium:CartPole", "did you mean the id env=gymnasium:CartPole-v1?"),
        ("gymnasium:CartPol", "did you mean the id env=gymnasium:CartPole-v1?"),
        ("minigrd:My-v0", "env.id=minigrd:My-v0: there is no package 'minigrd'; did you mean 'minigrid'?"),
        ("minigrd:make", "env.factory=minigrd:make: there is no package 'minigrd'; did you mean 'minigrid'?"),
        ("json:My-v0", "importing json registers none of its own"),
        ("my_corner:Cornr-v0", "did you mean 'Corner-v0'?"),
        ("my_corner:Xyzzy-v0", "my_corner registers Corner-v0"),
        ("my_corner:Cornr", "did you mean 'Corner'?"),
    ],
)
def test_names_in_packages_are_hinted_at(module, word, says):
    assert says in refused(f"env={word}")


@pytest.mark.parametrize(("package", "extra"), [("minigrid", "minigrid"), ("ale_py", "atari")])
@pytest.mark.parametrize("name", ["Foo", "Foo-v0"])
def test_a_package_that_is_known_and_missing_names_its_command(package, extra, name):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    assert f"[{extra}]" in refused(f"env={package}:{name}")
