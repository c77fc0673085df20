"""A trained policy used by itself, as a user's program does."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import metta_fast
from metta_fast.envs import make_factory
from metta_fast.errors import UserError
from metta_fast.evaluate import load_run
from metta_fast.play import PolicyPlayer, play
from metta_fast.spec import EVAL_SEED_BIT


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run with memory."""
    from metta_fast.compose import compose
    from metta_fast.resolve import resolve
    from metta_fast.trainer import Trainer

    folder = tmp_path_factory.mktemp("runs")
    words = [
        "hardware=cpu", "env=counter", "policy=lstm", "env.num_envs=8", "trainer.batch_size=256",
        "trainer.bptt_horizon=16", "trainer.minibatch_size=256", "trainer.total_timesteps=512",
        "trainer.torch_threads=1", "trainer.compile=false", "policy.hidden_size=16", "run.dashboard=none",
        "run.tensorboard=false", f"run.dir={folder}", "run.name=short",
    ]  # fmt: skip
    assert Trainer(resolve(compose(words))).run() == 0
    return folder / "short"


class Spied:
    """A player that also asks the loaded policy."""

    def __init__(self, player, loaded):
        self.player, self.loaded, self.pairs = player, loaded, []

    def act(self, rows, batch):
        obs = rows.obs["obs"] if len(self.pairs) % 2 else dict(rows.obs)
        self.pairs.append((self.player.act(rows, batch), self.loaded.act(obs, rows.reset)))
        return self.pairs[-1][0]


@pytest.mark.parametrize("deterministic", [True, False])
def test_it_acts_as_in_an_evaluation(run, deterministic):
    config, policy, device, _ = load_run(str(run), best=False)
    factory = make_factory(config.env, num_envs=3)
    loaded = metta_fast.load_policy(run, deterministic=deterministic, seed=5)
    player = PolicyPlayer(policy, factory.spec, device, deterministic=deterministic, seed=5)
    spied = Spied(player, loaded)
    play(factory, spied, seed=EVAL_SEED_BIT)
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
        (np.zeros((4, *leaf.shape), np.float64), f"is float64 .* expected {leaf.dtype}"),
        (np.zeros((4, *leaf.shape, 2), leaf.dtype), "expected"),
    ):
        with pytest.raises(UserError, match=message):
            loaded.act(obs)
    with pytest.raises(UserError, match=r"reset has shape \(2,\), expected \(4,\)"):
        loaded.act(np.zeros((4, *leaf.shape), leaf.dtype), reset=np.zeros(2, bool))
    with pytest.raises(UserError, match="no run or checkpoint nowhere"):
        metta_fast.load_policy("nowhere")


def test_the_package_stays_light():
    code = "import metta_fast, sys; assert not {'torch', 'numpy', 'hydra'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
