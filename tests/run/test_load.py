"""Tests a trained policy in a user's own program."""

from __future__ import annotations

import shutil
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.cli import main
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EVAL_SEED_BIT
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.inference.evaluate import load_run
from metta_fast.inference.loaded_policy import LoadedPolicy
from metta_fast.inference.players import PolicyPlayer, play
from metta_fast.policy import make_policy
from metta_fast.storage import checkpoint
from tests.export.runs import fake_run
from tests.tiny import COUNTER, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run with memory."""
    words = ("policy=lstm", "policy.hidden_size=16", "trainer.total_timesteps=1024")
    return trained(tmp_path_factory.mktemp("runs"), *COUNTER, *words)


class Spied:
    """A player that also asks the loaded policy."""

    def __init__(self, player, loaded):
        self.player, self.loaded, self.pairs = player, loaded, []

    def act(self, rows, batch):
        obs = rows.obs["obs"] if len(self.pairs) % 2 else dict(rows.obs)
        self.pairs.append((self.player.act(rows, batch), self.loaded.act(obs, rows.reset)))
        return self.pairs[-1][0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_a_run_of_a_card_is_used_where_there_is_none(tmp_path, capsys):
    run = fake_run(tmp_path / "r", "env=grid", "env.max_steps=20", card=True)
    assert metta_fast.load_policy(run).device.type == "cpu"
    for words in (
        ["eval", str(run), "--episodes", "2"],
        ["replay", str(run), "--html", str(tmp_path / "page.html")],
        ["export", str(run), "--out", str(tmp_path / "policy.pt")],
    ):
        assert main(words) == 0, capsys.readouterr().err
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("deterministic", [True, False])
def test_it_acts_as_in_an_evaluation(run, deterministic):
    _, policy, device, _, factory = load_run(str(run), best=False)
    loaded = metta_fast.load_policy(run, deterministic=deterministic, seed=5)
    player = PolicyPlayer(policy, factory.spec, device, deterministic=deterministic, seed=5)
    spied = Spied(player, loaded)
    play(factory, spied, 3, seed=EVAL_SEED_BIT)
    assert len(spied.pairs) > 10
    assert all(np.array_equal(own, other) for own, other in spied.pairs)


def test_memory_goes_on_until_a_restart(run):
    loaded = metta_fast.load_policy(next((run / "checkpoints").glob("step_*")), deterministic=True)
    leaf = loaded.spec.obs["obs"]
    obs = np.ones((4, *leaf.shape), leaf.dtype)
    actions = loaded.act(obs)
    assert (actions.shape, actions.dtype) == ((4, loaded.spec.action.width), np.int32)
    first = loaded._player._state.clone()
    loaded.act(obs)
    assert not (loaded._player._state == first).all()
    loaded.act(obs, reset=np.array([True, False, True, True]))
    assert (loaded._player._state[:, [0, 2, 3]] == first[:, [0, 2, 3]]).all()
    assert not (loaded._player._state[:, 1] == first[:, 1]).all()
    with pytest.raises(UserError, match=r"2 agents after 4: call restart\(\)"):
        loaded.act(obs[:2])
    loaded.restart()
    assert loaded.act(obs[:2]).shape[0] == 2


def test_mistakes_are_named(run):
    loaded = metta_fast.load_policy(run)
    leaf = loaded.spec.obs["obs"]
    for obs, message in (
        ({"pixels": np.zeros(3)}, r"\['pixels'\], expected \['obs'\]"),
        (np.zeros((4, *leaf.shape), np.float64), f"is float64, expected {leaf.dtype}"),
        (np.zeros((4, *leaf.shape, 2), leaf.dtype), "expected"),
    ):
        with pytest.raises(UserError, match=message):
            loaded.act(obs)
    with pytest.raises(UserError, match=r"reset has shape \(2,\), expected \(4,\)"):
        loaded.act(np.zeros((4, *leaf.shape), leaf.dtype), reset=np.zeros(2, bool))
    with pytest.raises(UserError, match="reset is int64, expected bool"):
        loaded.act(np.zeros((4, *leaf.shape), leaf.dtype), reset=[0, 1, 0, 0])
    with pytest.raises(UserError, match="no run or checkpoint nowhere"):
        metta_fast.load_policy("nowhere")
    with pytest.raises(UserError, match=r"device=quantum: .*give cpu"):
        metta_fast.load_policy(run, device="quantum")


def test_one_agent_and_tensors(run):
    loaded = metta_fast.load_policy(run, deterministic=True, device="cpu")
    leaf = loaded.spec.obs["obs"]
    many = loaded.act(torch.ones(3, *leaf.shape))
    loaded.restart()
    one = loaded.act(np.ones(leaf.shape, leaf.dtype), reset=True)
    assert one.shape == (1,)
    assert (many == one).all()


def test_weights_of_another_policy_are_listed(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "changed")
    newest = sorted((copy / "checkpoints").glob("step_*"))[-1]
    found = checkpoint.read(newest)
    state, meta = found.load("algorithm"), found.meta
    state["policy"]["heads.weight"] = torch.zeros(7, 3)
    del state["policy"]["heads.bias"]
    checkpoint.save(copy / "checkpoints", found.step, {"algorithm": state}, meta)
    with pytest.raises(
        UserError, match=r"heads.weight: \[7, 3\] there, \[3, 16\] here\n  heads.bias: none there"
    ):
        metta_fast.load_policy(copy)


class Own(gymnasium.Env):
    """A Dict of all kinds of observation; gives what it was asked to."""

    def __init__(self, action_space):
        self.action_space = action_space
        self.observation_space = gymnasium.spaces.Dict(
            place=gymnasium.spaces.Discrete(4, start=2),
            arm=gymnasium.spaces.Dict(angle=gymnasium.spaces.Box(-1, 1, (2, 2), np.float64)),
            heat=gymnasium.spaces.Box(0, 255, (), np.uint8),
        )


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(3, start=5),
        gymnasium.spaces.MultiDiscrete([2, 5]),
        gymnasium.spaces.Box(-2.0, 2.0, (2, 1), np.float64),
    ],
)
def test_an_environment_takes_what_it_gives(space):
    factory = PythonEnvFactory(lambda index: Own(space))
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=8, core="lstm"), factory.spec)
    made = {"deterministic": True, "seed": 0, "checkpoint": ""}
    loaded = LoadedPolicy(policy, factory, torch.device("cpu"), **made)
    env = Own(space)
    obs = env.observation_space.sample()
    action = loaded.act(obs, reset=True)
    assert space.contains(action), action
    leaves = {
        "arm/angle": obs["arm"]["angle"][None],
        "heat": np.array([[obs["heat"]]]),
        "place": np.eye(4, dtype=np.uint8)[[obs["place"] - 2]],
    }
    loaded.restart()
    row = loaded.act(leaves)
    assert row.shape == (1, loaded.spec.action.width)
    assert np.allclose(np.ravel(action), row[0])
    with pytest.raises(UserError, match=r"has \['place'\], expected \['arm/angle', 'heat', 'place'\]"):
        loaded.act({"place": 3})
    with pytest.raises(UserError, match="'place' is 9, outside its space"):
        loaded.act({**obs, "place": 9})
    with pytest.raises(UserError, match="differ in the number of agents: arm/angle 3, heat one, no axis"):
        loaded.act({**obs, "arm": {"angle": np.zeros((3, 2, 2))}})


def test_the_package_stays_light():
    code = "import metta_fast, sys; assert not {'torch', 'numpy', 'hydra'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_it_says_what_it_is(run, tmp_path):
    loaded = metta_fast.load_policy(run)
    told = loaded.describe()
    assert told["environment"] == "counter"
    assert told["observation"].startswith("obs [")
    assert told["actions"] == "one of 2; sampled actions"
    assert told["network"].startswith("mlp, width 16, lstm; ")
    assert told["network"].endswith(" parameters")
    assert told["trained"] == f"{load_run(str(run), best=False).checkpoint.step:,} steps"
    assert told["score"].startswith("env/return ")
    text = repr(loaded)
    assert text.startswith("<LoadedPolicy for counter: observation obs [")
    assert all(value in text for value in told.values())
    loaded.checkpoint = "<b>&"
    table = loaded._repr_html_()
    assert table.startswith("<table>")
    assert "&lt;b&gt;&amp;" in table
    assert table.count("<tr>") == len(told)
