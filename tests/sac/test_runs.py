"""SAC and TD3 from the command line: what they read and refuse, checkpoints, resume, every kind of input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.algorithms.sac.sac import SAC
from metta_fast.cli import main
from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.contracts.vector import WorkerError
from metta_fast.metrics.loggers import read_rows
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import Resolved, resolve
from metta_fast.run.callbacks import Callbacks
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.config.test_gpu import H100
from tests.run.same import curve, same
from tests.tiny import QUIET, named, trained

SMALL = ("policy.hidden_size=16", "trainer.minibatch_size=32", "algorithm.learning_starts=100")
TARGET = "env=metta_fast.envs.sanity.target:make"
BANDIT = "env=metta_fast.envs.sanity.bandit:make"
ROBOT = (
    "env=inverted_pendulum", "env.num_envs=2", "algorithm=sac", *SMALL, "trainer.deterministic=true",
    "algorithm.replay_size=1000",
)  # fmt: skip
OFTEN = ("run.checkpoint_interval=2", "run.min_interval_s=0")


@pytest.fixture(autouse=True)
def torch_as_it_was():
    """A deterministic run of a command sets torch for its whole process."""
    yield
    torch.use_deterministic_algorithms(False)


def resolved(*words: str) -> Resolved:
    return resolve(compose(["hardware=cpu", *words]))


def newest(run: Path) -> checkpoint.Checkpoint:
    found = checkpoint.latest(RunDir(run).checkpoints, pytest.fail)
    assert found is not None
    return found


def states(run: Path) -> dict:
    found = newest(run)
    kept = {name: state.make() for name, state in found.kept().items()}
    return kept | {name: found.load(name) for name in ("algorithm", "env")}


class Stop(metta_fast.Callback):
    """Ends the run after some epochs, as a signal would."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch(self, trainer, metrics) -> None:
        if trainer.epoch == self.epochs:
            trainer.stop()


def stopped(folder: Path, epochs: int, *words: str) -> Path:
    """The folder of a run that was stopped after `epochs` epochs."""
    found = resolve(compose([*QUIET, *named(folder), *words]))
    assert Trainer(found, callbacks=Callbacks([Stop(epochs)])).run() == 0
    return folder / "r"


@pytest.mark.parametrize("words", [
    ROBOT,
    (*ROBOT, "algorithm=td3", "vector.async_factor=2", "algorithm.n_step=3"),
    (*ROBOT, "policy.frame_stack=3", "policy.normalize_obs=true", "trainer.normalize_reward=true",
        "algorithm.replay_size=300"),
], ids=["sac", "td3", "frames"])  # fmt: skip
def test_a_resumed_run_equals_an_unbroken_one_to_the_bit(words, tmp_path) -> None:
    whole = trained(tmp_path / "whole", *words, *OFTEN, "trainer.total_timesteps=700")
    halves = stopped(tmp_path / "halves", 5, *words, *OFTEN, "trainer.total_timesteps=700")
    assert newest(halves).step < 400
    assert main(["train", f"resume={halves}"]) == 0
    same(states(halves), states(whole))
    assert curve(halves) == curve(whole)


def test_a_signal_in_the_middle_of_an_epoch_saves_the_buffer_of_the_last_boundary(
    tmp_path, monkeypatch
) -> None:
    """Rows of the epoch in progress are in the ring already; they must not be in the checkpoint."""
    words = (*ROBOT, *OFTEN, "trainer.total_timesteps=700", "algorithm.replay_size=200")
    whole = trained(tmp_path / "whole", *words)
    trainer = Trainer(resolve(compose([*QUIET, *named(tmp_path / "halves"), *words])))
    update = SAC.update

    def ended(algorithm: SAC) -> None:
        if algorithm.epoch == 5:
            assert algorithm.replay.added > algorithm._position["added"]
            trainer.interrupt.request("the test", 3)
            trainer.interrupt.check()
        update(algorithm)

    monkeypatch.setattr(SAC, "update", ended)
    assert trainer.run() == 3
    monkeypatch.undo()
    assert main(["train", f"resume={tmp_path / 'halves' / 'r'}"]) == 0
    same(states(tmp_path / "halves" / "r"), states(whole))


def test_an_epoch_is_repeated_with_new_workers_as_if_nothing_had_been(tmp_path, monkeypatch) -> None:
    words = (*ROBOT, *OFTEN, "trainer.total_timesteps=500", "vector.backend=workers", "vector.num_workers=1")
    whole = trained(tmp_path / "whole", *words)
    update, broken = SAC.update, []

    def breaks(algorithm: SAC) -> None:
        if algorithm.epoch == 4 and not broken:
            broken.append(1)
            raise WorkerError("the test ends a worker")
        update(algorithm)

    monkeypatch.setattr(SAC, "update", breaks)
    again = trained(tmp_path / "again", *words, "vector.restart_workers=1")
    assert broken
    same(states(again), states(whole))


def test_a_run_without_environments_states_goes_on_with_its_buffer(tmp_path) -> None:
    words = [word for word in ROBOT if word != "trainer.deterministic=true"]
    run = trained(tmp_path, *words, *OFTEN, "trainer.total_timesteps=320")
    before = newest(run)
    assert main(["train", f"resume={run}", "trainer.total_timesteps=500"]) == 0
    rows = list(read_rows(run / "metrics.jsonl"))
    assert rows[-1]["train/replay"] > 480, "the rows of before are still there"
    stopped = next(row for row in rows if row["train/steps"] == 320)
    assert rows[-1]["train/updates"] > stopped["train/updates"], "they are done in whole chunks"
    first = newest(run).kept()["replay-000000"].make()
    same(first, before.kept()["replay-000000"].make())


def test_a_lost_buffer_is_said_and_filled_anew(tmp_path) -> None:
    run = trained(tmp_path, *ROBOT, *OFTEN, "algorithm.save_replay=false", "trainer.total_timesteps=320")
    assert not newest(run).kept()
    assert main(["train", f"resume={run}", "trainer.total_timesteps=600"]) == 0
    assert (
        "the checkpoint has no replay buffer for these environments: it is filled anew"
        in (run / "train.log").read_text()
    )
    updates = {row["train/steps"]: row["train/updates"] for row in read_rows(run / "metrics.jsonl")}
    before, *after = [count for steps, count in updates.items() if steps >= 320]
    assert after[0] == before, "no update until 100 transitions are there"
    assert after[-1] > before


def test_its_policy_is_evaluated_loaded_exported_and_begins_another_run(tmp_path, capsys) -> None:
    run = trained(tmp_path, *ROBOT, "trainer.total_timesteps=300")
    assert main(["eval", str(run), "--episodes", "4"]) == 0
    policy = metta_fast.load_policy(run, deterministic=True)
    action = policy.act(np.zeros((3, 4), np.float32))
    assert action.shape == (3, 1)
    assert (np.abs(action) <= 3).all()
    assert main(["export", str(run), "--format", "torchscript", "--out", str(tmp_path / "p.pt")]) == 0
    more = ("trainer.total_timesteps=200", f"init_from={run}")
    other = trained(tmp_path / "other", *ROBOT, *more)
    assert newest(other).step == 200


@pytest.mark.parametrize("words", [
    ("env=metta_fast.envs.sanity.catch:make", "policy.frame_stack=2", "trainer.random_shift=4",
        "trainer.minibatch_size=8", "policy.hidden_size=8"),
    ("env=metta_fast.envs.sanity.legal:make",),
    ("env=tests.batched.envs:sync", "env.params.mode=SameStep", "algorithm.n_step=2"),
    ("env=CartPole-v1", "vector.backend=workers", "vector.num_workers=1"),
    (TARGET, "algorithm=td3"),
    (TARGET, "algorithm.critics=3", "algorithm.layer_norm=true", "algorithm.actor_delay=2", "trainer.max_grad_norm=1"),
    (TARGET, "trainer.precision=bf16", "trainer.schedule=cosine", "trainer.noise_color=1", "trainer.debug=true"),
    (TARGET, "algorithm.target_entropy=null", "run.gradient_stats_interval=1", "run.min_interval_s=0"),
], ids=["pixels", "masks", "same-step", "workers", "td3", "options", "bf16", "fixed-temperature"])  # fmt: skip
def test_every_kind_of_input_trains(words, tmp_path) -> None:
    given = ("algorithm=sac", *SMALL, "trainer.total_timesteps=256", "trainer.device=cpu", *words)
    run = trained(tmp_path, *given)
    row = list(read_rows(run / "metrics.jsonl"))[-1]
    assert row["train/steps"] == 256
    assert row["train/updates"] > 60
    assert np.isfinite(row["loss/value"])


def test_what_it_shows_before_a_run() -> None:
    found = resolved("env=half_cheetah", "algorithm=sac")
    said = explain_text(found)
    for text in (
        "algorithm.target_entropy=-6.0",
        "auto: minus the number of continuous actions",
        "algorithm.learning_starts=5000",
        "steps of an epoch = 64",
        "updates of an epoch = 64",
        "left out: algorithm=sac does not read it (env/robot: 2048)",
        "policy.hidden_size=256",
    ):
        assert text in said
    assert "auto" not in found.config.algorithm.values()
    replay = next(part for part in found.memory if part.name == "replay buffer")
    assert replay.bytes == pytest.approx(1_000_000 * (17 * 4 + 6 * 4 + 8), rel=0.01)


@pytest.mark.parametrize(("words", "message"), [
    (("algorithm=td3", BANDIT), r"algorithm=td3 is for continuous actions, but .* has discrete ones"),
    (("env=metta_fast.envs.sanity.copy:make",), r"or one choice, but .* has 3 choices; give algorithm=ppo"),
    (("env=metta_fast.envs.sanity.parts:make",), r"choices and numbers in one action; give algorithm=ppo"),
    ((TARGET, "policy=lstm"), r"policy\.core=lstm: .* policy\.frame_stack=4"),
    ((TARGET, "policy.squash=false"), r"policy\.squash=false: algorithm=sac squashes"),
    ((BANDIT, "policy.squash=true"), r"policy\.squash=true has no effect"),
    ((TARGET, "policy.shared=false"), r"policy\.shared=false has no effect: algorithm=sac has critics of their own"),
    ((TARGET, "trainer.batch_size=64"), r"trainer\.batch_size=64: algorithm=sac does not read this key"),
    ((TARGET, "trainer.update_epochs=2"), r"trainer\.update_epochs=2: algorithm=sac does not read this key"),
    ((TARGET, "trainer.schedule=adaptive"), r"trainer\.schedule=adaptive .* give constant, linear or cosine"),
    ((TARGET, "algorithm.learning_starts=1000", "trainer.total_timesteps=1000"), r"is not below .* most 999"),
    ((TARGET, "algorithm.replay_size=1e14"), r"algorithm\.replay_size=1e\+?14|algorithm\.replay_size=100000000000000"),
    ((TARGET, "algorithm.replay_size=2e9", "trainer.total_timesteps=3e9"), r"host memory are needed \(replay buffer"),
    ((TARGET, "algorithm.replay_size=8", "algorithm.collect_steps=16"), r"less than one epoch of 16 rows of 4 agents"),
    ((TARGET, "algorithm.tau=2"), r"algorithm\.tau=2: expected a number from 0 to 1 or auto"),
    ((TARGET, "algorithm.taus=2"), r"algorithm\.taus: unknown key; did you mean 'algorithm\.tau'"),
    ((TARGET, "trainer.random_shift=4"), r"random_shift"),
    ((TARGET, "features.prioritized_replay.prio_alpha=0.5"), r"does not call sample"),
])  # fmt: skip
def test_what_does_not_go_with_it_is_refused(words, message) -> None:
    with pytest.raises(UserError, match=message):
        resolved("algorithm=sac", *words)


def test_unbounded_actions_are_not_squashed() -> None:
    found = resolved("algorithm=sac", "env=tests.sac.envs:unbounded")
    assert found.config.policy.squash is False


def test_an_environment_of_another_kind_gets_its_recipe_and_derived_values() -> None:
    found = resolved("algorithm=sac", "env=Pendulum-v1", "trainer.total_timesteps=20000")
    assert found.config.algorithm["learning_starts"] == 2000
    assert found.config.algorithm["replay_size"] == 20000
    assert found.config.policy.hidden_size == 256
    assert found.config.trainer.gamma == 0.99


def test_a_loss_that_is_not_finite_ends_the_run_with_the_last_good_state(tmp_path) -> None:
    found = resolve(compose([
        *QUIET, *named(tmp_path), "env=tests.sac.envs:huge", "algorithm=sac", *SMALL, "trainer.total_timesteps=2000",
        "trainer.device=cpu",
    ]))  # fmt: skip
    trainer = Trainer(found)
    assert trainer.run() == 1
    assert isinstance(trainer.failure, NonFiniteError)
    assert "trainer.learning_rate" in str(trainer.failure)


def test_environments_on_the_gpu_are_learned_from_massively_parallel() -> None:
    words = ["algorithm=sac", "env=ant", "env.device=cuda"]
    found = resolve(compose(words, machine=H100), machine=H100)
    config = found.config
    assert (config.env.num_envs, config.trainer.minibatch_size, config.policy.normalize_obs) == (
        1024,
        8192,
        True,
    )
    assert config.trainer.schedule == "constant"
    assert config.algorithm["updates_per_step"] * 1024 == 4
    assert config.algorithm["layer_norm"] is True
    assert found.origins["trainer.minibatch_size"] == "algorithm/sac, on_gpu"
    typed = resolve(
        compose([*words, "env.num_envs=64", "algorithm.tau=0.1"], machine=H100), machine=H100
    ).config
    assert (typed.env.num_envs, typed.algorithm["tau"]) == (64, 0.1)
    plain = resolve(compose(["algorithm=sac", "env=ant"], machine=H100), machine=H100).config
    assert (plain.env.device, plain.env.num_envs, plain.trainer.cuda_graphs) == ("cpu", 4, True)
