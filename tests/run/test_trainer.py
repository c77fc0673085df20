"""Tests the loop with a fake algorithm: checkpoints, resume, failures and signals."""

import dataclasses
import os
import signal
import threading
import time
from itertools import pairwise

import pytest
import torch
import yaml

from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.contracts.vector import WorkerError
from metta_fast.inference import evaluate
from metta_fast.metrics.loggers import read_rows
from metta_fast.run.run_writer import RunWriter
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.fake import STEPS, Builder, resolved
from tests.tiny import COUNTER, trained


def found(folder):
    return [step for step, _ in checkpoint.steps(folder / "fake" / "checkpoints")]


def rows(folder):
    return list(read_rows(folder / "fake" / "metrics.jsonl"))


def go_on(folder, builder, **run):
    run_dir = RunDir(folder / "fake")
    start = checkpoint.latest(run_dir.checkpoints, pytest.fail)
    return Trainer(resolved(folder, **run), folder=run_dir, start=start, build=builder).run()


def later(seconds, signum):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signum))
    timer.start()
    return timer


def test_trains_to_the_end_with_files_in_place(tmp_path):
    builder = Builder()
    assert Trainer(resolved(tmp_path), build=builder).run() == 0
    assert found(tmp_path) == [400, 800, 1000]
    assert [row["train/steps"] for row in rows(tmp_path)] == list(range(100, 1001, 100))
    assert yaml.safe_load((tmp_path / "fake/config.yaml").read_text())["trainer"]["total_timesteps"] == 1000
    assert "trained to 1000 steps" in (tmp_path / "fake/train.log").read_text()
    assert builder.vec.closed == 1


@pytest.mark.parametrize("has", [True, False])
def test_environments_without_final_observations_are_told_once(tmp_path, has):
    builder = Builder()

    def build(config, factory):
        parts = builder(config, factory)
        return dataclasses.replace(parts, spec=dataclasses.replace(parts.spec, has_final_obs=has))

    assert Trainer(resolved(tmp_path), build=build).run() == 0
    said = (tmp_path / "fake/train.log").read_text()
    assert said.count("no final observations") == (not has)


def test_the_name_of_a_run_is_taken_once(tmp_path):
    Trainer(resolved(tmp_path), build=Builder()).run()
    with pytest.raises(UserError, match="resume=auto"):
        Trainer(resolved(tmp_path), build=Builder())


def test_a_resumed_run_equals_an_unbroken_one(tmp_path):
    whole = Builder()
    Trainer(resolved(tmp_path / "a"), build=whole).run()
    broken = Builder(fail={6: WorkerError("worker 3 was killed")})
    assert Trainer(resolved(tmp_path / "b"), build=broken).run() == 1
    assert found(tmp_path / "b") == [400, 600]
    again = Builder()
    assert go_on(tmp_path / "b", again) == 0
    assert torch.equal(again.algorithm.weight, whole.algorithm.weight)
    assert [row["loss/policy"] for row in rows(tmp_path / "b")] == [
        row["loss/policy"] for row in rows(tmp_path / "a")
    ]
    assert [row["train/epoch"] for row in rows(tmp_path / "b")] == list(range(1, 11))


def test_a_resume_from_an_earlier_one_cuts_the_rows_and_puts_the_later_aside(tmp_path):
    Trainer(resolved(tmp_path), build=Builder()).run()
    path = tmp_path / "fake/checkpoints/step_000000000400"
    trainer = Trainer(
        resolved(tmp_path),
        folder=RunDir(tmp_path / "fake"),
        start=checkpoint.read(path),
        build=Builder(fail={5: WorkerError("gone")}),
    )
    assert trainer.run() == 1
    assert found(tmp_path) == [400, 500]
    assert [row["train/steps"] for row in rows(tmp_path)] == [100, 200, 300, 400, 500]


def test_a_finished_run_stays_finished(tmp_path):
    Trainer(resolved(tmp_path), build=Builder()).run()
    assert go_on(tmp_path, Builder()) == 0
    assert found(tmp_path) == [400, 800, 1000]


def test_speed_counts_from_the_resume(tmp_path):
    """Steps and seconds of earlier sessions count in no speed; the seconds of training go on from them."""
    Trainer(resolved(tmp_path), build=Builder(fail={6: WorkerError("gone")})).run()
    start = checkpoint.latest(tmp_path / "fake" / "checkpoints", pytest.fail)
    assert 0 < start.meta["seconds"] < 100
    start.meta["seconds"] = 1000.0
    again = Trainer(
        resolved(tmp_path), folder=RunDir(tmp_path / "fake"), start=start, build=Builder(seconds=0.05)
    )
    assert again.run() == 0
    resumed = rows(tmp_path)[6:]
    assert len(resumed) == 4
    for epochs, row in enumerate(resumed, 1):
        assert row["perf/steps_per_second_mean"] < 1.01 * STEPS / 0.05
        assert row["perf/steps_per_second"] < 1.01 * STEPS / 0.05
        assert 1000 + 0.05 * epochs <= row["train/seconds"] < 1100
    assert checkpoint.latest(tmp_path / "fake" / "checkpoints", pytest.fail).meta["seconds"] > 1000.2


@pytest.mark.parametrize(
    "error", [NonFiniteError("reward of env 7 is NaN"), WorkerError("worker 2 died\nTraceback…")]
)
def test_a_failure_saves_the_last_good_state(tmp_path, error, capsys):
    builder = Builder(fail={2: error})
    assert Trainer(resolved(tmp_path), build=builder).run() == 1
    assert found(tmp_path) == [200]
    said = capsys.readouterr().err
    assert str(error) in said
    assert "at step 200" in said
    assert "Traceback (most recent call last)" not in said
    assert "Traceback (most recent call last)" in (tmp_path / "fake/train.log").read_text()
    assert builder.vec.closed == 1


def test_weights_that_are_not_finite_reach_no_checkpoint(tmp_path):
    builder = Builder(fail={3: NonFiniteError("loss is NaN")})

    def build(config, factory):
        parts = builder(config, factory)
        update = builder.algorithm.update

        def spoilt():
            update()
            if builder.algorithm.epoch == 3:
                builder.algorithm.weight[1] = float("nan")

        builder.algorithm.update = spoilt
        return parts

    assert Trainer(resolved(tmp_path, checkpoint_interval=2), build=build).run() == 1
    assert found(tmp_path) == [200]


def test_any_other_error_saves_too_and_is_raised(tmp_path):
    with pytest.raises(ZeroDivisionError):
        Trainer(resolved(tmp_path), build=Builder(fail={2: ZeroDivisionError()})).run()
    assert found(tmp_path) == [200]


def test_out_of_gpu_memory_names_keys_to_try(tmp_path):
    with pytest.raises(UserError, match=r"trainer\.batch_size"):
        Trainer(resolved(tmp_path), build=Builder(fail={2: torch.OutOfMemoryError()})).run()
    assert found(tmp_path) == [200]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_drops_the_epoch_and_saves_the_last_boundary(tmp_path, signum, code):
    builder = Builder(seconds=0.25)
    later(0.6, signum)
    assert Trainer(resolved(tmp_path), build=builder).run() == code
    steps = found(tmp_path)[-1]
    assert steps == builder.algorithm.steps < 1000
    assert [row["train/steps"] for row in rows(tmp_path)][-1] == steps
    assert builder.vec.closed == 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    again = Builder()
    assert go_on(tmp_path, again) == 0
    assert again.vec.count == 1000


def test_a_signal_in_the_first_epoch_saves_the_start(tmp_path):
    later(0.2, signal.SIGTERM)
    assert Trainer(resolved(tmp_path), build=Builder(seconds=10)).run() == 143
    assert found(tmp_path) == [0]
    assert go_on(tmp_path, Builder()) == 0
    assert [row["train/steps"] for row in rows(tmp_path)] == list(range(100, 1001, 100))


def test_the_exit_code_of_a_preemption_is_a_key(tmp_path):
    later(0.2, signal.SIGTERM)
    assert Trainer(resolved(tmp_path, preempt_exit_code=33), build=Builder(seconds=1)).run() == 33


def test_a_second_ctrl_c_quits_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("metta_fast.run.signals.ECHO_S", 0.0)
    builder = Builder(seconds=0.05)

    def stuck(*args):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)

    monkeypatch.setattr(checkpoint, "save", stuck)
    later(0.2, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Trainer(resolved(tmp_path, checkpoint_interval=1000), build=builder).run()
    assert builder.vec.closed == 1


@pytest.mark.parametrize("error", [UserError("no such policy"), WorkerError("env 3 cannot be made")])
def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, error):
    def build(config, factory):
        raise error

    trainer = Trainer(resolved(tmp_path), build=build)
    if isinstance(error, UserError):
        with pytest.raises(UserError):
            trainer.run()
    else:
        assert trainer.run() == 1
    assert list(tmp_path.iterdir()) == []


def test_repeated_signals_do_not_stop_the_save(tmp_path, monkeypatch):
    real = checkpoint.save

    def save(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        return real(*args)

    monkeypatch.setattr(checkpoint, "save", save)
    later(0.3, signal.SIGTERM)
    assert Trainer(resolved(tmp_path, checkpoint_interval=1000), build=Builder(seconds=0.05)).run() == 143
    assert len(found(tmp_path)) == 1


def test_workers_that_die_of_the_same_signal_are_no_failure(tmp_path, monkeypatch):
    builder = Builder()

    def build(config, factory):
        parts = builder(config, factory)
        collect = builder.algorithm.collect

        def dies():
            collect()
            if builder.algorithm.epoch == 3:
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                except KeyboardInterrupt:
                    raise WorkerError("worker 0 was killed by SIGTERM") from None

        builder.algorithm.collect = dies
        return parts

    assert Trainer(resolved(tmp_path), build=build).run() == 143
    assert found(tmp_path) == [300]


def test_two_processes_never_write_one_run(tmp_path):
    Trainer(resolved(tmp_path), build=Builder()).run()
    other = RunDir(tmp_path / "fake")
    other.lock()
    with pytest.raises(UserError, match=f"process {os.getpid()}"):
        go_on(tmp_path, Builder())
    other.unlock()
    assert go_on(tmp_path, Builder()) == 0


def test_checkpoints_come_at_the_latest_after_their_seconds(tmp_path):
    run = {
        "checkpoint_interval": 1000,
        "min_interval_s": 1000.0,
        "checkpoint_max_s": 0.2,
        "keep_checkpoints": 99,
    }
    Trainer(resolved(tmp_path, **run), build=Builder(seconds=0.06)).run()
    assert 2 <= len(found(tmp_path)) <= 4


def test_intervals_keep_their_seconds_apart(tmp_path):
    Trainer(resolved(tmp_path, checkpoint_interval=1, min_interval_s=1000.0), build=Builder()).run()
    assert found(tmp_path) == [1000]


def test_the_best_of_the_training_returns_is_kept(tmp_path):
    builder = Builder()

    def build(config, factory):
        parts = builder(config, factory)
        metrics = builder.algorithm.metrics
        builder.algorithm.metrics = lambda: {**metrics(), "env/return": -abs(builder.algorithm.epoch - 4)}
        return parts

    Trainer(resolved(tmp_path, checkpoint_interval=1, keep_checkpoints=2), build=build).run()
    assert found(tmp_path) == [400, 900, 1000]


def test_an_evaluations_time_counts_in_no_speed_and_no_phase(tmp_path, monkeypatch):
    def slow(config, policy, **given):
        time.sleep(0.5)
        assert given["seed"] == 5
        return {"eval/return": 1.0}

    monkeypatch.setattr(evaluate, "evaluate", slow)
    asked = resolved(tmp_path, evaluate_interval=1, evaluate_seed=5, checkpoint_interval=0)
    asked.config.trainer.total_timesteps = 5 * STEPS
    assert Trainer(asked, build=Builder(seconds=0.02)).run() == 0
    assert len(rows(tmp_path)) == 5
    for row in rows(tmp_path):
        assert row["eval/seconds"] > 0.49
        assert row["perf/time/boundary"] < 0.45
        assert row["perf/steps_per_second_mean"] > STEPS / 0.45


@pytest.mark.parametrize("backend", ["serial", "threads", "workers"])
def test_every_step_moves_the_progress(tmp_path, monkeypatch, backend):
    """Each row of the first block counts, from the epoch's first step to its last, never backwards."""
    seen = []
    monkeypatch.setattr(RunWriter, "moved", lambda self, steps: seen.append(steps))
    trained(tmp_path, *COUNTER, f"vector.backend={backend}", "trainer.total_timesteps=512")
    assert seen == sorted(seen)
    assert all(later - earlier <= 8 for earlier, later in pairwise(seen))
    assert (seen[0], seen[-1]) == (8, 512)
