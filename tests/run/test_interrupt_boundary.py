"""Tests signals and requests that come while a training evaluates its policy or writes a replay."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

from metta_fast.config.keys import Config
from metta_fast.contracts.recording import World
from metta_fast.envs import make_factory
from metta_fast.episodes import record as record_module
from metta_fast.inference import evaluate as evaluate_module
from metta_fast.inference.evaluate import evaluate
from metta_fast.inference.players import play
from metta_fast.metrics.loggers import read_rows
from metta_fast.policy import make_policy
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.callbacks import Callback, Callbacks
from metta_fast.run.signals import Interrupt, Interrupted, Reason
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from tests.run.fake import STEPS, Builder, resolved
from tests.tiny import COUNTER, named

CPU = torch.device("cpu")
LONG_S = 20.0
"""An evaluation that nobody ends."""


class Endless:
    """Stands in for a function that takes very long: calls `stop` once it has begun, and counts its ends."""

    def __init__(self, stop, result=None):
        self.stop, self.result, self.calls, self.ended = stop, result, 0, 0

    def __call__(self, *args, check=None, **given):
        self.calls += 1
        self.stop()
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            time.sleep(0.01)
            if check is not None:
                check()
        self.ended += 1
        return self.result


def send(signum):
    return lambda: threading.Timer(0.05, os.kill, (os.getpid(), signum)).start()


def steps_of(folder, name="fake"):
    return [step for step, _ in checkpoint.steps(folder / name / "checkpoints")]


def rows(folder, name="fake"):
    return list(read_rows(folder / name / "metrics.jsonl"))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_an_evaluation_out_and_saves_its_boundary(tmp_path, monkeypatch, signum, code):
    slow = Endless(send(signum), {"eval/return": 1.0})
    monkeypatch.setattr(evaluate_module, "evaluate", slow)
    paths = []

    class Saved(Callback):
        def on_checkpoint(self, trainer, path):
            paths.append(path.name)

    asked = resolved(tmp_path, evaluate_interval=3, checkpoint_interval=0)
    trainer = Trainer(asked, build=Builder(), callbacks=Callbacks([Saved()]))
    assert trainer.run() == code
    assert (slow.calls, slow.ended) == (1, 0)
    assert steps_of(tmp_path) == [3 * STEPS]
    assert paths == ["step_000000000300"]
    assert [row["train/steps"] for row in rows(tmp_path)] == [100, 200, 300]
    assert not any(name.startswith("eval/") for row in rows(tmp_path) for name in row)
    [(_, path)] = checkpoint.steps(tmp_path / "fake" / "checkpoints")
    assert checkpoint.read(path).meta["score"]["name"] == "env/return"
    said = (tmp_path / "fake/train.log").read_text()
    assert "the evaluation at step 300 was left out" in said
    assert "at step 300; continue with resume=" in said


def test_a_signal_in_the_last_evaluation_ends_the_run_with_its_code(tmp_path, monkeypatch):
    slow = Endless(send(signal.SIGTERM), {"eval/return": 1.0})
    monkeypatch.setattr(evaluate_module, "evaluate", slow)
    asked = resolved(tmp_path, evaluate_interval=10, checkpoint_interval=0)
    assert Trainer(asked, build=Builder()).run() == 143
    assert slow.ended == 0
    assert steps_of(tmp_path) == [10 * STEPS]


@pytest.mark.parametrize("interval", [3, 50])
def test_a_signal_ends_a_replay_and_saves_its_boundary(tmp_path, monkeypatch, interval):
    """interval 50: the replay at the end of the training."""
    slow = Endless(send(signal.SIGTERM))
    monkeypatch.setattr("metta_fast.episodes.training.write_replay", slow)
    builder = Builder()
    assert Trainer(resolved(tmp_path, replay_interval=interval), build=builder).run() == 143
    assert (slow.calls, slow.ended) == (1, 0)
    assert steps_of(tmp_path)[-1] == builder.algorithm.steps == min(interval, 10) * STEPS
    assert "continue with resume=" in (tmp_path / "fake/train.log").read_text()


@pytest.mark.parametrize("main_thread", [True, False])
def test_a_request_from_another_thread_ends_an_evaluation(tmp_path, monkeypatch, main_thread):
    """Outside the main thread no signal can: the evaluation asks after each step."""
    trainer = []

    def request():
        thread = threading.Thread(target=trainer[0].interrupt.request, args=("the machine ends", 75))
        thread.start()

    slow = Endless(request, {"eval/return": 1.0})
    monkeypatch.setattr(evaluate_module, "evaluate", slow)
    trainer.append(Trainer(resolved(tmp_path, evaluate_interval=2, checkpoint_interval=0), build=Builder()))
    codes = []
    if main_thread:
        codes.append(trainer[0].run())
    else:
        thread = threading.Thread(target=lambda: codes.append(trainer[0].run()))
        thread.start()
        thread.join(2 * LONG_S)
    assert codes == [75]
    assert (slow.calls, slow.ended) == (1, 0)
    assert steps_of(tmp_path) == [2 * STEPS]


def test_a_real_evaluation_of_a_training_is_ended(tmp_path, monkeypatch):
    """Episodes of a million steps: the signal comes while they are played."""
    ends = []

    def watched(*args, **given):
        send(signal.SIGTERM)()
        try:
            return play(*args, **given)
        except BaseException as error:
            ends.append(type(error))
            raise

    monkeypatch.setattr(evaluate_module, "play", watched)
    keys = ["run.evaluate_interval=2", "run.min_interval_s=0", "env.max_steps=1000000"]
    trainer = Trainer(resolve(compose([*COUNTER, *named(tmp_path), *keys])))
    assert trainer.run() == 143
    assert ends == [Interrupted]
    assert steps_of(tmp_path, "r") == [2 * 256]
    assert trainer.policy.training


class Spy:
    """A factory whose batch calls `at_step` in each step, and tells whether it was closed."""

    def __init__(self, factory, at_step):
        self.inner, self.at_step, self.closed, self.steps = factory, at_step, 0, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def make_batch(self, *args):
        batch, spy = self.inner.make_batch(*args), self
        inner_step, inner_close = batch.step, batch.close

        class Batch:
            def __getattr__(self, name):
                return getattr(batch, name)

            def step(self):
                inner_step()
                spy.steps += 1
                spy.at_step(spy.steps)

            def close(self):
                spy.closed += 1
                inner_close()

        return Batch()


def counter(**keys):
    config = Config()
    config.env.name = config.env.factory = "counter"
    config.env.observation, config.env.agents_per_env, config.env.max_steps = "default", 1, 1000
    config.policy.hidden_size = 16
    return config, make_factory(config.env)


@pytest.mark.parametrize("training", [True, False])
def test_an_interrupted_evaluation_leaves_the_policy_as_it_was(training):
    config, factory = counter()
    policy = make_policy(config.policy, factory.spec).train(training)
    before, state = {k: v.clone() for k, v in policy.state_dict().items()}, torch.get_rng_state()
    spy = Spy(factory, lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 7 else None)
    with Interrupt() as interrupt, pytest.raises(Interrupted), interrupt.allowed():
        evaluate(spy, policy, device=CPU, num_envs=4, seed=1, deterministic=False)
    assert (spy.steps, spy.closed) == (7, 1)
    assert policy.training == training
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.is_inference_mode_enabled()
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_an_evaluation_asks_after_each_step():
    config, factory = counter()
    policy = make_policy(config.policy, factory.spec)
    spy, asked = Spy(factory, lambda step: None), []

    def check():
        asked.append(spy.steps)
        if spy.steps == 3:
            raise Interrupted(Reason("asked", 1))

    with pytest.raises(Interrupted):
        evaluate(spy, policy, device=CPU, num_envs=4, seed=1, deterministic=False, check=check)
    assert asked == [1, 2, 3]
    assert spy.closed == 1


@pytest.mark.parametrize("where", ["episode", "page"])
def test_an_interrupted_replay_leaves_no_file_and_no_process(tmp_path, monkeypatch, where):
    """The recorder, which may hold a process that draws, is closed."""
    from metta_fast.episodes import html
    from metta_fast.episodes.training import write_replay
    from metta_fast.storage.run_folder import create

    config, factory = counter()
    policy = make_policy(config.policy, factory.spec).train()

    class Recorder:
        closed = 0

        def see(self):
            return

        def world(self):
            return World()

        def close(self):
            self.closed += 1

    recorder = Recorder()
    stop_at = 7 if where == "episode" else 10**9
    spy = Spy(factory, lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == stop_at else None)
    spy.make_recorder = lambda batch: recorder
    if where == "page":

        def half(recording):
            os.kill(os.getpid(), signal.SIGTERM)
            return "half"

        monkeypatch.setattr(html, "page", half)
    folder = create(str(tmp_path), "r", "counter")
    with Interrupt() as interrupt, pytest.raises(Interrupted), interrupt.allowed():
        write_replay(config, spy, policy, folder, 100)
    assert (recorder.closed, spy.closed) == (1, 1)
    assert policy.training
    assert [path for path in folder.path.rglob("*") if path.is_file()] == []


def test_a_recorder_is_closed_after_its_episode_too():
    _, factory = counter()
    closed = []

    class Recorder:
        def see(self):
            return

        def world(self):
            assert not closed
            return World()

        def close(self):
            closed.append(True)

    class Waits:
        def act(self, rows, batch):
            return np.zeros_like(rows.action)

    factory.make_recorder = lambda batch: Recorder()
    record_module.record(factory, Waits(), seed=1)
    assert closed == [True]


@pytest.mark.parametrize("asks", [True, False])
def test_a_signal_waits_for_a_callback_unless_it_asks(tmp_path, asks):
    done = []

    class Slow(Callback):
        def on_epoch(self, trainer, metrics):
            if trainer.epoch == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                if asks:
                    trainer.interrupt.check()
                done.append(trainer.steps)

    trainer = Trainer(
        resolved(tmp_path, checkpoint_interval=0), build=Builder(), callbacks=Callbacks([Slow()])
    )
    assert trainer.run() == 143
    assert done == ([] if asks else [2 * STEPS])
    assert steps_of(tmp_path) == [2 * STEPS]
