"""Tests a run that continues in another place: another machine, device or number of environments, and what is said."""

from __future__ import annotations

import dataclasses
import re

import pytest

from metta_fast.cli import main
from metta_fast.machine.hardware import Gpu, Machine
from metta_fast.metrics.loggers import read_rows
from metta_fast.metrics.machine_time import META, Place
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.take_over.moved import moved, place_of
from metta_fast.storage import checkpoint
from tests.tiny import COUNTER, named, trained

CORES = Machine(cores=2, cores_total=2, memory=8 << 30)
CARD = Machine(cores=2, cores_total=2, memory=8 << 30, gpus=(Gpu("NVIDIA L4", 24 << 30, (8, 9)),))
SAC = ("algorithm=sac", "env=inverted_pendulum", "policy.hidden_size=8", "trainer.minibatch_size=16",
       "algorithm.learning_starts=20", "algorithm.replay_size=200")  # fmt: skip


def newest(run):
    return checkpoint.latest(run / "checkpoints", pytest.fail)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A short run on two cores."""
    return newest(trained(tmp_path_factory.mktemp("made"), *COUNTER, "trainer.total_timesteps=512"))


def here(made, machine=CORES, **trainer):
    composed = compose(["hardware=cpu", *COUNTER[1:]])
    found = resolve(composed, machine=machine)
    for name, value in trainer.items():
        setattr(found.config.trainer, name, value)
    return found


def test_the_same_place_says_nothing(made):
    place = place_of(made)
    assert place.on == "cpu"
    assert moved(made, place, here(made)) == []


def test_another_machine_is_told_with_its_profile(made):
    there = place_of(made)
    differs, profile = moved(
        made, Place("gpu", "NVIDIA L4"), here(made, CARD, device="cuda", precision="bf16")
    )
    assert differs.startswith(f"this session differs from the one before: {there} → NVIDIA L4, ")
    assert "trainer.device cpu → cuda, trainer.precision fp32 → bf16" in differs
    assert "not bit for bit those of an undisturbed run" in differs
    assert profile.startswith(
        "the run keeps the values of hardware=cpu, and this machine's are hardware=l4 (found "
    )


def test_another_torch_and_other_threads_are_told(made):
    old = dataclasses.replace(made, meta=made.meta | {"torch": "2.0.0"})
    (line,) = moved(old, place_of(made), here(made, torch_threads=7))
    assert "trainer.torch_threads 1 → 7, torch 2.0.0 → " in line
    older = dataclasses.replace(made, meta={k: v for k, v in made.meta.items() if k not in (META, "torch")})
    assert moved(older, Place("gpu", "NVIDIA L4"), here(made)) == []


@pytest.mark.parametrize(("words", "changes", "others"), [
    (COUNTER, ["env.num_envs=4"], []),
    (COUNTER, ["env.num_envs=6", "trainer.batch_size=192"], []),
    ((*COUNTER, "policy.core=lstm", "trainer.normalize_reward=true", "policy.normalize_obs=true"),
     ["env.num_envs=16", "trainer.minibatch_size=128"], []),
    (SAC, ["env.num_envs=6"], ["no replay buffer for these environments: it is filled anew"]),
], ids=["fewer", "another batch", "lstm", "sac"])  # fmt: skip
def test_a_run_goes_on_with_another_number_of_environments_and_back(tmp_path, capsys, words, changes, others):
    run = trained(tmp_path, *words, "trainer.total_timesteps=512")
    before, number = newest(run).step, newest(run).meta["config"]["env"]["num_envs"]
    again = ["train", f"run.dir={tmp_path}", "resume=r"]
    capsys.readouterr()
    assert main([*again, *changes, f"trainer.total_timesteps={before + 900}"]) == 0
    said = capsys.readouterr().err
    changed = changes[0].partition("=")[2]
    assert f"env.num_envs {number} → {changed}" in said
    assert f"new episodes: their state in the checkpoint is that of env.num_envs={number}" in said
    for text in others:
        assert text in said
    moved_on = newest(run)
    assert moved_on.step >= before + 900
    assert moved_on.meta["config"]["env"]["num_envs"] == int(changed)
    batch = [word for word in words if word.startswith("trainer.batch_size")]
    back = [f"env.num_envs={number}", *(batch if len(changes) > 1 else [])]
    assert main([*again, *back, f"trainer.total_timesteps={moved_on.step + 900}"]) == 0
    steps = [row["train/steps"] for row in read_rows(run / "metrics.jsonl")]
    assert steps == sorted(set(steps))
    assert newest(run).step >= moved_on.step + 900


def test_an_unmoved_resume_is_told_of_nothing(tmp_path, capsys):
    trained(tmp_path, *COUNTER, "trainer.total_timesteps=512")
    assert main(["train", *COUNTER, *named(tmp_path), "resume=auto", "trainer.total_timesteps=1024"]) == 0
    assert not re.search("differs|keeps the values", capsys.readouterr().err)
