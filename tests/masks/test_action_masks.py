"""Tests where masks are found, that they reach every choice of an action, and what is refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import metta_fast
from metta_fast.cli import main
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import WorkerError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.sanity.legal import Legal
from metta_fast.envs.sanity.tour import Tour
from metta_fast.inference.players import PolicyPlayer, RandomPlayer, play
from metta_fast.policy import make_policy
from metta_fast.vector import make_vector
from tests.masks.masked_env import MaskedEnv
from tests.ppo.stand_in import make_ppo

LEGAL = "metta_fast.envs.sanity.legal:make"
SMALL = [
    "trainer.device=cpu",
    "env.num_envs=4",
    "vector.num_workers=2",
    "run.dashboard=none",
    "run.tensorboard=false",
    "run.monitor_interval=0",
    "trainer.total_timesteps=256",
    "trainer.batch_size=128",
    "trainer.minibatch_size=64",
    "trainer.bptt_horizon=16",
    "trainer.update_epochs=1",
    "policy.hidden_size=16",
]


class Masked(MaskedEnv):
    """Episodes of three steps; several heads have a mask each, except in an observation."""

    def __init__(self, source="info", action=None, live=True, length=3):
        form = "flat" if action is None or source == "obs" else "parts"
        super().__init__(action or spaces.Discrete(4, start=2), source, form, length=length, live=live)


HEADS = spaces.MultiDiscrete([3, 2])


@pytest.mark.parametrize("action", [None, HEADS])
@pytest.mark.parametrize("source", ["obs", "info", "method"])
@pytest.mark.parametrize("backend", ["serial", "workers"])
def test_found_and_carried_by_each_backend(source, backend, action):
    given = "info" if source == "info" else "auto"
    factory = PythonEnvFactory(lambda index: Masked(source, action), action_mask=given)
    assert factory.spec.action_mask
    assert factory.mask.describe() == ("obs:action_mask" if source == "obs" else source)
    assert "action_mask" not in factory.spec.obs
    player = RandomPlayer(factory.spec, 3)
    vec = make_vector(factory, 4, num_blocks=2, backend=backend)
    try:
        vec.async_reset(1)
        for _ in range(20):
            block = vec.recv()
            assert block.rows.action_mask[block.rows.mask].any(1).all()
            vec.send(block, player.act(block.rows, None))
    finally:
        vec.close()


def test_without_a_mask_no_rows_are_kept():
    factory = PythonEnvFactory(lambda index: gymnasium.make("CartPole-v1"))
    assert not factory.spec.action_mask
    vec = make_vector(factory, 2, num_blocks=1, backend="serial")
    assert vec.rows.action_mask.shape == (2, 0)
    vec.close()
    plain = PythonEnvFactory(lambda index: Masked("obs"), action_mask="none")
    assert "action_mask" in plain.spec.obs


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("info", "method", "no method action_masks"),
        ("info", "obs:x", "no such leaf; the observation has obs"),
        ("obs", "obs:seen", r"float32 \[2\], expected bool or int8 \[4\]"),
        ("info", "mask", "expected auto, none, absent, info, method or obs:LEAF"),
    ],
)
def test_refused_at_the_start(source, given, words):
    with pytest.raises(UserError, match=words):
        PythonEnvFactory(lambda index: Masked(source), action_mask=given)


def wrong(change):
    class Wrong(Masked):
        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return obs, change(info)

    return PythonEnvFactory(lambda index: Wrong(), action_mask="info")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda info: {}, "is missing"),
        (lambda info: {"action_mask": np.ones(3, np.bool_)}, r"has shape \[3\], expected \[4\]"),
        (lambda info: {"action_mask": np.ones(4)}, "is float64"),
    ],
)
def test_a_wrong_mask_names_its_environment(change, words):
    vec = make_vector(wrong(change), 2, num_blocks=1, backend="serial")
    vec.async_reset(1)
    with pytest.raises(WorkerError, match=f"environment 0 gave a wrong value: .*{words}"):
        vec.recv()


def test_a_live_row_without_a_legal_action_is_named():
    factory = PythonEnvFactory(lambda index: Masked("method", HEADS, live=False))
    policy = make_policy(PolicyConfig(hidden_size=8), factory.spec)
    ours = PolicyPlayer(policy, factory.spec, torch.device("cpu"), deterministic=None)
    for player in (RandomPlayer(factory.spec), ours):
        with pytest.raises(
            EnvError,
            match=r"without a legal choice for action head 0 in environment 0 \(agent 0 of it\); allow",
        ):
            play(factory, player, 2, seed=1)
    ppo = make_ppo(factory, policy=policy, num_envs=2, blocks=1, horizon=8, bptt=4, minibatches=1)
    with pytest.raises(EnvError, match=r"head 0 in environment 0 .*, row 0 of the rollout of epoch 0; allow"):
        ppo.collect()
    ppo.vec.close()


def test_an_evaluation_plays_legal_actions_alone():
    factory = PythonEnvFactory(lambda index: Legal())
    episodes = play(factory, RandomPlayer(factory.spec), 8, seed=1)
    assert (episodes.lengths == 10).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run; Legal raises on an illegal action."""
    folder = tmp_path_factory.mktemp("legal")
    assert main(["train", f"env={LEGAL}", *SMALL, f"run.dir={folder}", "run.name=legal"]) == 0
    return folder / "legal"


def test_a_run_is_evaluated_with_masks(run, capsys):
    assert main(["eval", str(run), "--episodes", "8", "--json"]) == 0
    assert '"length": 10.0' in capsys.readouterr().out


def test_a_loaded_policy_takes_legal_actions_alone(run):
    policy = metta_fast.load_policy(run)
    rng = np.random.default_rng(0)
    with pytest.raises(UserError, match="give act"):
        policy.act(np.ones((3, 1), np.float32))
    with pytest.raises(UserError, match="no legal choice"):
        policy.act(np.ones((1, 1), np.float32), action_mask=np.zeros((1, 20), np.bool_))
    policy.restart()
    for _ in range(30):
        mask = rng.random((3, 20)) < 0.1
        mask[np.arange(3), rng.integers(0, 20, 3)] = True
        actions = policy.act(np.ones((3, 1), np.float32), action_mask=mask)
        assert mask[np.arange(3), actions[:, 0]].all()


def test_an_exported_policy_takes_the_mask(run, tmp_path):
    done = metta_fast.export_policy(run, tmp_path / "p.pt")
    assert [one["name"] for one in done.metadata["inputs"]][:2] == ["obs", "action_mask"]
    step = torch.jit.load(str(done.path))
    mask = torch.zeros(2, 20, dtype=torch.bool)
    mask[0, 7] = mask[1, 13] = True
    assert step(torch.ones(2, 1), mask)[0].flatten().tolist() == [7, 13]


def test_the_knights_tour():
    env = Tour()
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert obs.sum() == 2
    moves, over = 0, False
    while not over:
        legal = env.action_masks().nonzero()[0]
        assert 1 <= len(legal) <= 8
        row, column = divmod(env.cell, 10)
        assert {(abs(c // 10 - row), abs(c % 10 - column)) for c in legal} <= {(1, 2), (2, 1)}
        obs, reward, over, _, _ = env.step(legal[0])
        moves += 1
        assert (reward, obs[:100].sum()) == (1.0, moves + 1)
    env.reset(seed=1)
    assert env.step(np.int64(env.cell))[1:4] == (0.0, True, False)
