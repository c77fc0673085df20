"""Tests that a typed key without an effect is refused, naming what gives it one; defaults and files are harmless."""

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

HERE = Machine(4, 4, 16 << 30, (), "cpu")
COUNTER = ("hardware=cpu", "env=counter", "vector.backend=serial")


def resolved(*words):
    return resolve(compose([*COUNTER, *words]), machine=HERE)


@pytest.mark.parametrize(
    ("word", "cure"),
    [
        ("policy.squash=true", "continuous"),
        ("policy.state_std=true", "continuous"),
        ("policy.initial_log_std=-1.0", "continuous"),
        ("trainer.noise_color=1.0", "continuous"),
        ("vector.num_workers=2", "vector.backend=workers"),
        ("vector.num_threads=2", "vector.backend=threads"),
        ("vector.worker_timeout_s=5.0", "vector.backend=workers"),
        ("env.observation=dense", "env.observation=default"),
        ("env.step_cost=cheap", "remove it"),
        ("trainer.vtrace_rho_clip=2.0", "trainer.advantage=vtrace"),
        ("trainer.vtrace_c_clip=2.0", "trainer.advantage=vtrace"),
        ("trainer.desired_kl=0.1", "trainer.schedule=adaptive"),
        ("trainer.random_shift_coef=0.2", "trainer.random_shift=4"),
        ("trainer.compile_mode=max-autotune", "trainer.compile=true"),
        ("run.evaluate_episodes=8", "run.evaluate_interval="),
        ("run.evaluate_seed=8", "run.evaluate_interval="),
        ("run.keep_replays=8", "run.replay_interval="),
        ("wandb.project=mine", "wandb.mode="),
        ("wandb.group=mine", "wandb.mode="),
    ],
)
def test_a_key_without_an_effect_is_refused(word, cure):
    with pytest.raises(UserError, match="has no effect") as caught:
        resolved(word)
    assert str(caught.value).startswith(f"{word} has no effect: ")
    assert cure in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["policy.squash=false"],
        ["trainer.desired_kl=0.01"],
        ["wandb.project=metta_fast"],
        ["run.evaluate_interval=3", "run.evaluate_episodes=8"],
        ["trainer.schedule=adaptive", "trainer.desired_kl=0.1"],
        ["vector.backend=workers", "vector.num_workers=2"],
        ["vector.num_workers=auto"],
    ],
)
def test_a_default_or_a_key_with_an_effect_is_used(words):
    assert not any("has no effect" in note for note in resolved(*words).notes)


def test_keys_for_a_gpu_are_a_note_on_a_cpu():
    assert any("trainer.tf32=false has no effect" in note for note in resolved("trainer.tf32=false").notes)


def test_a_recipes_values_are_not_refused(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [counter, _self_]\npolicy: {squash: true}\n"
    )
    resolve(compose(["hardware=cpu", "--config-dir", str(tmp_path), "env=mine"]), machine=HERE)
