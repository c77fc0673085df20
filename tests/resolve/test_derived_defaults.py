"""Tests the order of sources: schema < detected profile < derived < typed profile < recipes < command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.derived.values import Facts, derive
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import Resolved, resolve

LAPTOP = Machine(2, 4, 16 * GIB)
H100 = Machine(16, 64, 128 * GIB, (Gpu("NVIDIA H100 80GB HBM3", 79 * GIB, (9, 0)),), "cuda")
CARD = Machine(4, 4, 64 * GIB, (Gpu("Some card", 48 * GIB, (9, 0)),), "cuda")
CHEAP = [
    "env=tests.strangers:cheap",
    "env.step_cost=cheap",
    "env.action_mask=none",
    "trainer.total_timesteps=50_000",
]
TEAM = ["env=tests.strangers:team", "env.step_cost=slow", "trainer.total_timesteps=50_000"]
ALL = ("trainer.batch_size", "trainer.learning_rate", "trainer.schedule", "trainer.gamma", "env.num_envs")
"""Keys that hardware/cpu sets and derived values set as well."""


def resolved(*words: str, machine: Machine = LAPTOP, default: str = "ultra_fast") -> Resolved:
    return resolve(compose(words, default_hardware=default, machine=machine), machine=machine)


def value(done: Resolved, path: str) -> object:
    group, _, name = path.partition(".")
    return getattr(getattr(done.config, group), name)


@pytest.mark.parametrize("env", [CHEAP, TEAM])
@pytest.mark.parametrize("hardware", [[], ["hardware=auto"]])
@pytest.mark.parametrize("machine", [LAPTOP, H100, CARD])
def test_derived_values_win_over_a_detected_profile(
    env: list[str], hardware: list[str], machine: Machine
) -> None:
    done = resolved(*env, *hardware, machine=machine)
    spec = done.factory.spec
    values = derive(Facts(spec, spec.max_steps or None, done.config.env.step_cost, 50_000))
    for path in values:
        assert done.origins[path].startswith("derived: "), path
        assert value(done, path) == values[path][0] or path == "trainer.batch_size", path
    assert 0.5 < done.config.trainer.batch_size / values["trainer.batch_size"][0] < 1.5
    rest = {path for path, origin in done.origins.items() if origin.startswith("hardware/")}
    assert all(path.startswith(("vector.", "trainer.device", "trainer.precision")) for path in rest)
    assert done.config.run.evaluate_interval == 0  # ultra_fast has 500


def test_the_default_profile_counts_as_detected_and_suits_the_machine() -> None:
    laptop, here = resolved(*CHEAP), resolved(*CHEAP, default="auto")
    assert laptop.config == here.config  # run_optimized.py on a laptop as `metta-fast train`
    assert laptop.config.vector.num_workers <= 2
    assert laptop.groups["hardware"] == "cpu"
    few = Machine(4, 4, 64 * GIB, H100.gpus, "cuda")
    done = resolved(*CHEAP, machine=few)
    assert done.groups["hardware"] == "ultra_fast"
    assert (done.config.vector.backend, done.config.vector.num_workers) == ("workers", 4)
    assert done.config.env.num_envs < 512


def test_a_typed_profile_sets_all_of_its_keys() -> None:
    done = resolved(*CHEAP, "hardware=cpu")
    assert [done.origins[path] for path in ALL] == ["hardware/cpu"] * len(ALL)
    assert (done.config.trainer.vf_coef, done.config.trainer.batch_size) == (2.0, 32768)
    assert done.origins["trainer.minibatch_size"].startswith("derived: ")  # cpu.yaml has none


def test_a_profiles_batch_is_a_ceiling_typed_or_not() -> None:
    done = resolved(*TEAM, "hardware=cpu")
    assert done.config.trainer.batch_size == 32768 // (128 * 3) * (128 * 3)
    assert "rounded down to whole segments" in done.origins["trainer.batch_size"]


def test_a_recipe_wins_over_derived_values_and_a_typed_profile(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text(
        "# @package _global_\nenv: {name: mine, factory: 'tests.strangers:cheap', observation: default}\n"
        "trainer: {gamma: 0.5, batch_size: 512}\n"
    )
    done = resolved("--config-dir", str(tmp_path), "env=mine", "env.step_cost=cheap", "hardware=cpu")
    assert (done.config.trainer.gamma, done.config.trainer.batch_size) == (0.5, 512)
    assert done.origins["trainer.gamma"] == "env/mine"
    assert done.config.trainer.learning_rate == 0.003  # the profile's
    robot = resolved("env=robot", "env.factory=tests.strangers:cheap", "env.step_cost=cheap")
    assert robot.origins["trainer.minibatch_size"] == "env/robot"
    assert robot.config.policy.initial_log_std == -0.5


def test_a_policys_recipe_wins_over_derived_values() -> None:
    done = resolved(*CHEAP, "policy=lstm")
    assert (done.config.policy.core, done.origins["policy.core"]) == ("lstm", "policy/lstm")
    assert done.config.trainer.bptt_horizon > 1  # what is derived knows of the core


def test_a_policy_of_ones_own_may_be_recurrent() -> None:
    done = resolved(*CHEAP, "policy=tests.policy.test_own_policy:Deep")
    assert done.config.trainer.bptt_horizon == 32
    assert done.config.policy.hidden_size == 128  # policy.* is for networks of ours


def test_the_command_line_wins_over_all() -> None:
    typed = [
        "trainer.learning_rate=0.01",
        "env.num_envs=4",
        "trainer.batch_size=256",
        "trainer.minibatch_size=64",
    ]
    for hardware in ([], ["hardware=cpu"]):
        config = resolved(*CHEAP, *hardware, *typed).config
        assert (config.trainer.learning_rate, config.env.num_envs, config.trainer.batch_size) == (
            0.01,
            4,
            256,
        )


def test_a_key_that_the_algorithm_does_not_read_is_left_out_not_refused() -> None:
    done = resolved(*CHEAP, "algorithm=tests.toy_algorithm:Toy", "hardware=cpu")
    assert done.origins["trainer.vf_coef"].startswith("left out: ")
    assert done.config.trainer.update_epochs == 1
    assert not done.origins["trainer.update_epochs"].startswith("derived")


def test_the_budget_and_the_episodes_length_change_derived_values() -> None:
    short, long = resolved(*CHEAP), resolved(*CHEAP, "trainer.total_timesteps=20_000_000")
    assert short.config.trainer.batch_size < long.config.trainer.batch_size
    assert resolved(*TEAM).config.trainer.gamma != short.config.trainer.gamma


def test_the_length_of_an_episode_is_what_is_stated_or_given(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text(
        "# @package _global_\n"
        "env: {name: mine, factory: 'tests.strangers:cheap', observation: default, max_steps: 40}\n"
    )
    own = ["--config-dir", str(tmp_path), "env=mine", *CHEAP[1:]]
    gammas = [
        resolved(*words).config.trainer.gamma
        for words in (
            CHEAP,
            own,
            [*CHEAP, "env.max_steps=40"],
            [*CHEAP, "env.max_steps=80", "env.action_repeat=2"],
        )
    ]
    assert gammas[0] != gammas[1]  # unknown, although the schema's max_steps is 1000
    assert gammas[1] == gammas[2] == gammas[3]


def test_few_environments_with_a_cheap_step_are_one_block() -> None:
    assert resolved(*CHEAP).config.vector.async_factor == 1
    assert resolved(*CHEAP, machine=H100).config.vector.async_factor == 1  # ultra_fast, detected, has 8
    assert resolved(*CHEAP, "env.num_envs=64").config.vector.async_factor == 2
    assert resolved(*TEAM).config.vector.async_factor == 2
    assert resolved(*CHEAP, "vector.async_factor=4").config.vector.async_factor == 4


def test_explain_gives_the_reasons_and_what_the_profile_has() -> None:
    text = explain_text(resolved(*TEAM))
    assert "trainer.learning_rate=0.0003" in text
    assert "# derived: " in text
    assert "(hardware/cpu has 0.003)" in text
    assert "hardware/cpu was detected, not typed" in " ".join(text.split())
    assert "episode length = 8 " in text


@pytest.mark.parametrize("envs", [1, 7, 13, 100])
def test_a_derived_batch_is_whole_minibatches_of_any_number_of_agents(envs: int) -> None:
    config = resolved(*TEAM, f"env.num_envs={envs}").config
    assert config.trainer.batch_size % (3 * envs) == 0
    assert config.trainer.minibatch_size >= 32
    rows = config.trainer.batch_size / (3 * envs)
    assert rows >= 32 or config.trainer.total_timesteps / config.trainer.batch_size >= 10  # rows or updates


@pytest.mark.parametrize("words", [["env=grid"], ["env=counter"], ["env=grid", "policy=lstm"]])
def test_our_own_environments_keep_their_profiles(words: list[str]) -> None:
    done = resolved(*words)
    assert (done.config.env.num_envs, done.groups["hardware"]) == (512, "ultra_fast")
    assert not any(origin.startswith("derived") for origin in done.origins.values())
    assert resolved(*words, "hardware=auto").config.trainer.batch_size == 32768
