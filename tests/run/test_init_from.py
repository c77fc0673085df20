"""Tests init_from=RUN: a new run that starts with another run's policy."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.build import build_parts
from metta_fast.run.resume import prepare
from metta_fast.storage import checkpoint
from tests.tiny import COUNTER

NET = ("policy=lstm", "policy.hidden_size=16", "policy.normalize_obs=true")


def train(folder, *words):
    return main(["train", *COUNTER, f"run.dir={folder}", *words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a run `first` of four epochs."""
    folder = tmp_path_factory.mktemp("runs")
    assert train(folder, *NET, "run.name=first", "trainer.total_timesteps=1000") == 0
    return folder


def begun(folder, *words):
    words = [*COUNTER, f"run.dir={folder}", *words]
    return prepare(compose(words), words)


def states(folder, name):
    found = checkpoint.latest(folder / name / "checkpoints", pytest.fail)
    return found, found.load("algorithm")


def test_policy_and_normalisers_come_over_and_nothing_else(folder):
    words = ["init_from=first", "run.name=tuned", "env.params.goal=5", "trainer.learning_rate=0"]
    assert train(folder, *words, "trainer.total_timesteps=200") == 0
    (first, before), (tuned, after) = states(folder, "first"), states(folder, "tuned")
    assert tuned.meta["config"]["policy"] == first.meta["config"]["policy"]
    assert tuned.meta["config"]["init_from"] == str(first.path)
    moments = {name for name in before["policy"] if name.startswith("normalizer.")}
    for name, weight in before["policy"].items():
        if name not in moments:
            assert torch.equal(weight, after["policy"][name]), name
    assert after["policy"]["normalizer.count"] == before["policy"]["normalizer.count"] + tuned.step
    assert after["reward_scale"]["moments"][0] == before["reward_scale"]["moments"][0] + tuned.step
    assert (after["epoch"], before["epoch"]) == (1, 4)
    assert tuned.step < first.step
    steps = {float(entry["step"]) for entry in after["optimizer"]["state"].values()}
    assert steps == {1.0}
    log = (folder / "tuned" / "train.log").read_text()
    assert f"starts with the policy of {first.path}" in log


def test_discounted_returns_begin_at_0(folder):
    """The other run's are of its own episodes. Their variance comes over."""
    start = begun(folder, "init_from=first")
    resolved = resolve(start.composed)
    parts = build_parts(resolved.config, resolved.factory)
    try:
        state = start.init.load("algorithm")
        parts.algorithm.start_from(state, "first")
        scale = parts.algorithm.reward_scale
        assert scale.discounted.shape == state["reward_scale"]["discounted"].shape
        assert (state["reward_scale"]["discounted"] != 0).any()
        assert (scale.discounted == 0).all()
        assert torch.equal(scale.moments, state["reward_scale"]["moments"])
    finally:
        parts.close()


def test_the_policys_keys_are_the_other_runs_unless_typed(folder):
    start = begun(folder, "init_from=first")
    config = start.composed.config
    assert (config.policy.core, config.policy.hidden_size, config.policy.normalize_obs) == ("lstm", 16, True)
    assert start.composed.origins["policy.core"] == "init_from first"
    assert start.init.step > 0
    assert (start.folder, start.checkpoint) == (None, None)
    assert begun(folder, "init_from=first", "policy.hidden_size=32").composed.config.policy.hidden_size == 32
    assert begun(folder, "init_from=first", "policy=mingru").composed.config.policy.core == "mingru"
    step = next((folder / "first" / "checkpoints").glob("step_*"))
    assert begun(folder, f"init_from={step}").init.path == step


def test_keys_of_a_users_policy_come_over_one_by_one(folder):
    words = [
        "policy=tests.policy.test_own_policy:Deep",
        "policy.params={depth: 2, width: 4}",
        "run.name=deep",
    ]
    assert train(folder, *words, "trainer.total_timesteps=200") == 0
    start = begun(folder, "init_from=deep", "policy.params.width=8")
    assert start.composed.config.policy.params == {"depth": 2, "width": 8}
    assert begun(folder, "init_from=deep").composed.config.policy.params == {"depth": 2, "width": 4}


def test_other_weights_are_listed_and_leave_no_run(folder, capsys):
    assert train(folder, "init_from=first", "policy.hidden_size=24", "run.name=bad") == 2
    told = capsys.readouterr().err
    for line in (
        "its weights do not fit the policy",
        "encoder.first.weight: [16, 1] there, [24, 1] here",
        "and 2 more",
        "leave out what changes the policy",
    ):
        assert line in told
    assert "Traceback" not in told
    assert not (folder / "bad").exists()


def test_an_environment_that_the_other_policy_cannot_read(folder, capsys):
    words = [
        "env=grid",
        "init_from=first",
        "run.name=blind",
        "trainer.batch_size=4096",
        "trainer.minibatch_size=4096",
    ]
    assert train(folder, *words) == 2
    told = capsys.readouterr().err
    assert "policy.normalize_obs=true, but grid gives no floating-point observation" in told
    assert "(the policy's keys are those of init_from=" in told
    assert not (folder / "blind").exists()


def test_beside_resume(folder, tmp_path):
    """The same command starts a fine-tuning and recovers it."""
    source = f"init_from={folder / 'first'}"
    words = ("resume=auto", "run.name=job", source)
    assert begun(tmp_path, *words).init is not None
    assert train(tmp_path, *words, "trainer.total_timesteps=300") == 0
    again = begun(tmp_path, *words)
    assert again.init is None
    assert again.checkpoint.step >= 256
    assert again.composed.config.init_from == again.checkpoint.meta["config"]["init_from"]
    assert any("is ignored" in note for note in again.composed.notes)
    with pytest.raises(UserError, match=r"init_from=.* starts a new one .* remove one of them"):
        begun(tmp_path, f"resume={tmp_path / 'job'}", source)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="init_from=nowhere: no such folder; expected a run or one of its"):
        begun(tmp_path, "init_from=nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no complete checkpoint; give a run that has one$"):
        begun(tmp_path, "init_from=empty")


def test_an_environment_of_ones_own_takes_the_whole_network_over(folder):
    """Keys with the schema's value too: what is derived for the environment must not change them."""
    words = [
        "init_from=first",
        "env=tests.strangers:cheap",
        "env.step_cost=cheap",
        "env.action_mask=none",
        f"run.dir={folder}",
    ]
    done = resolve(prepare(compose(words, default_hardware="auto"), words).composed)
    first = checkpoint.latest(folder / "first" / "checkpoints", pytest.fail).meta["config"]
    assert first["policy"]["activation"] == "relu"  # as in the schema
    assert asdict(done.config.policy) == first["policy"]
    assert done.origins["trainer.learning_rate"].startswith("derived: ")
