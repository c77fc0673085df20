"""Tests metta_fast.train: training from a program, with callbacks."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metta_fast
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorError
from metta_fast.policy import Policy, PolicyOutput
from metta_fast.resolve.compose import compose
from metta_fast.run.train_function import words_of
from metta_fast.storage import checkpoint

SMALL = {
    "hardware": "cpu",
    "env__num_envs": 8,
    "vector__backend": "serial",
    "run": {"dashboard": "none", "tensorboard": False},
    "trainer": {
        "batch_size": 256,
        "bptt_horizon": 16,
        "minibatch_size": 256,
        "torch_threads": 1,
        "total_timesteps": 600,
    },
    "policy__hidden_size": 8,
}


def train(folder, *args, **keys):
    run = {**SMALL["run"], "dir": folder}
    return metta_fast.train(*args, **{**SMALL, "run": run, **keys})


class Spy(metta_fast.Callback):
    def __init__(self):
        self.seen, self.rows, self.paths = [], [], []

    def on_start(self, trainer):
        self.seen.append(("start", trainer.epoch))

    def on_epoch(self, trainer, metrics):
        self.seen.append(("epoch", trainer.epoch))
        self.rows.append(metrics)

    def on_checkpoint(self, trainer, path):
        self.seen.append(("checkpoint", trainer.epoch))
        assert checkpoint.read(path).step == trainer.steps

    def on_end(self, trainer):
        self.seen.append(("end", trainer.failure))
        assert isinstance(trainer.policy, Policy)


def test_it_trains_and_gives_back_what_was_learnt(tmp_path):
    spy = Spy()
    result = train(tmp_path, "counter", run__name="first", callbacks=[spy])
    assert result.folder == tmp_path / "first"
    assert result.steps >= 600
    assert result.stopped is None
    assert result.metrics["train/steps"] == result.steps
    assert np.isfinite(result.metrics["env/return"])
    assert spy.seen == [
        ("start", 0), ("epoch", 1), ("epoch", 2), ("epoch", 3), ("checkpoint", 3), ("end", None),
    ]  # fmt: skip
    assert spy.rows[-1].items() <= result.metrics.items()
    assert result.policy.act(np.zeros((3, 1), np.float32)).shape == (3, 1)
    assert result.policy.checkpoint == str(result.checkpoint)
    again = train(tmp_path, resume="first", trainer__total_timesteps=result.steps + 1)
    assert again.folder == result.folder
    assert again.steps > result.steps


def counts():
    return threading.active_count(), len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))


@pytest.mark.parametrize("backend", ["serial", "workers", "threads"])
def test_again_and_again_in_one_process(tmp_path, backend):
    """Threads, files, shared memory and torch's switches are as before."""
    env = "grid_solo" if backend == "threads" else "counter"
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    before_threads = torch.get_num_threads()
    seen = []
    for seed in range(3):
        train(tmp_path, env, vector__backend=backend, seed=seed, trainer__deterministic=True)
        seen.append(counts())
    assert seen[1] == seen[2]
    assert torch.get_num_threads() == before_threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.rand(2), expected)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_in_another_thread(tmp_path):
    """No signal handlers there: setting one would raise."""
    found = []
    thread = threading.Thread(target=lambda: found.append(train(tmp_path, "counter")))
    thread.start()
    thread.join(60)
    assert found[0].steps >= 600


class Stop(metta_fast.Callback):
    def on_epoch(self, trainer, metrics):
        if trainer.epoch == 2:
            trainer.stop("two are enough")


def test_a_callback_ends_the_training(tmp_path, capsys):
    spy = Spy()
    result = train(tmp_path, "counter", callbacks=[Stop(), spy], trainer__total_timesteps=100_000)
    assert result.stopped == "two are enough"
    assert checkpoint.read(result.checkpoint).meta["epoch"] == 2
    assert spy.seen[-2:] == [("checkpoint", 2), ("end", None)]
    assert "stopped: two are enough. The state is saved at step" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["on_start", "on_epoch", "on_checkpoint", "on_end"])
def test_what_a_callback_raises_names_it_and_comes_after_the_save(tmp_path, method):
    def fail(self, trainer, *args):
        if trainer.epoch >= 2 or method == "on_start":
            raise ZeroDivisionError("oh")

    failing, spy = type("Failing", (metta_fast.Callback,), {method: fail})(), Spy()
    with pytest.raises(
        metta_fast.CallbackError, match=rf"callback Failing.{method} raised ZeroDivisionError: oh"
    ) as e:
        train(tmp_path, "counter", run__name="r", callbacks=[failing, spy])
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    epochs = [
        checkpoint.read(path).meta["epoch"] for _, path in checkpoint.steps(tmp_path / "r" / "checkpoints")
    ]
    assert epochs == {"on_start": [0], "on_epoch": [2]}.get(method, [3])
    assert spy.seen[-1][0] == "end"
    assert "Failing" in (tmp_path / "r" / "train.log").read_text() or method == "on_end"


def test_ctrl_c_saves_and_goes_on_up(tmp_path):
    class Press(Spy):
        def on_epoch(self, trainer, metrics):
            super().on_epoch(trainer, metrics)
            os.kill(os.getpid(), signal.SIGINT)

    press = Press()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, "counter", run__name="r", callbacks=[press])
    assert press.seen == [("start", 0), ("epoch", 1), ("checkpoint", 1), ("end", None)]


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-5, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        if action == 1 and getattr(self, "breaks", False):
            raise OSError("stuck")
        self.place = float(np.clip(self.place + 2 * action - 1, -5, 5))
        return np.array([self.place], np.float32), self.place, abs(self.place) == 5, False, {}


class Broken(Walk):
    breaks = True


def make_walk(config):
    return lambda index: Walk()


def make_broken(config):
    return lambda index: Broken()


class Net(Policy):
    def __init__(self, config, spec):
        super().__init__(spec)
        self.net = torch.nn.Linear(1, 3)

    def forward(self, obs, state, reset):
        out = self.net(obs["obs"])
        return PolicyOutput(out[..., :2], out[..., 2], state)


def test_environments_and_policies_of_ones_own(tmp_path):
    result = train(tmp_path, make_walk, policy=Net, env__agents_per_env=1)
    assert isinstance(result.policy.policy, Net)
    env = Walk()
    obs, _ = env.reset()
    assert env.action_space.contains(result.policy.act(obs, reset=True))


def test_failures_are_raised(tmp_path):
    spy = Spy()
    with pytest.raises(VectorError, match="raised OSError: stuck"):
        train(tmp_path, make_broken, policy=Net, env__agents_per_env=1, callbacks=[spy])
    assert isinstance(spy.seen[-1][1], VectorError)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"env": "gird"}, "unknown env 'gird'; did you mean 'env=grid'"),
        (
            {"env": "counter", "trainer__gama": 0.9},
            "unknown key 'trainer.gama'; did you mean 'trainer.gamma'",
        ),
        ({"env": "counter", "trainer__gamma": "high"}, "trainer.gamma=high: expected a number"),
        ({"env": "counter", "seed": object()}, "a object cannot be stored in the run's configuration"),
        (
            {"env": lambda config: None},
            "give a function or class that is defined at the top level of a module",
        ),
        ({"env": "counter", "callbacks": [Spy]}, "is not a metta_fast.Callback; give an instance, Spy()"),
        ({"env": "counter", "resume": "nowhere"}, "resume=nowhere: no such folder"),
    ],
)
def test_mistakes(tmp_path, keys, message):
    with pytest.raises(UserError, match=re.escape(message)):
        train(tmp_path, **keys)
    assert list(tmp_path.iterdir()) == []


TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=1000, exclude_characters="$"), max_size=20)


@given(TEXT, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_values_arrive_as_they_are(text, whole, real, yes):
    keys = {
        "env__params": {"a": text, "b": whole, "deep": {"c": real}},
        "env__params__d": [text, yes, None, -whole],
    }
    params = compose(words_of({"hardware": "cpu", **keys, "run__dir": Path("x y")})).config
    expected = {"a": text, "b": whole, "deep": {"c": real}, "d": [text, yes, None, -whole]}
    assert {name: params.env.params[name] for name in expected} == expected
    assert params.run.dir == "x y"


COUNTED = """
import gymnasium

calls = []

def make(config):
    calls.append(config.name)
    return lambda index: gymnasium.make("CartPole-v1")
"""


def test_the_users_factory_is_made_once_a_run(tmp_path, monkeypatch):
    """With evaluations and replays; the workers get a copy of the same."""
    (tmp_path / "counted_env.py").write_text(COUNTED)
    monkeypatch.syspath_prepend(tmp_path)
    result = metta_fast.train(
        env="counted_env:make", hardware="cpu", run__dir=str(tmp_path / "runs"), run__dashboard="none",
        env__num_envs=4, trainer__batch_size=256, trainer__minibatch_size=128, trainer__bptt_horizon=16,
        trainer__total_timesteps=512, run__evaluate_interval=1, run__min_interval_s=0, run__replay_interval=1,
        run__evaluate_episodes=2, trainer__torch_threads=1,
    )  # fmt: skip
    assert result.steps >= 512
    assert "eval/return" in result.metrics
    module = sys.modules.pop("counted_env")
    assert module.calls == ["counted_env"]
