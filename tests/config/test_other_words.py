"""Tests words of other programs' command lines: what each one means, who wins, and what is refused."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from metta_fast.config.keys import get
from metta_fast.config.other_words import CONFIGS, translate
from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import Resolved, resolve

LAPTOP = Machine(4, 8, 16 * GIB)
needs_robots = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs MuJoCo")


def resolved(*words: str) -> Resolved:
    return resolve(compose(["hardware=cpu", *words], machine=LAPTOP), machine=LAPTOP)


def values(done: Resolved, *paths: str) -> list[object]:
    return [get(done.config, path) for path in paths]


@needs_robots
@pytest.mark.parametrize("words", [["--config-name", "multi_env_wrist"], ["--config-name=multi_env_wrist"]])
def test_a_named_configuration(words: list[str]) -> None:
    done = resolved(*words)
    paths = ("env.name", "env.num_envs", "env.image.cameras", "trainer.batch_size")
    assert values(done, *paths) == ["lift_cube_wrist", 4, ["wrist"], 4 * 512]
    assert (
        done.notes.count(
            "--config-name multi_env_wrist means env=lift_cube_wrist env.num_envs=4 and 512 steps of each in a batch"
        )
        == 1
    )


@needs_robots
def test_what_is_typed_wins_over_the_named_configuration() -> None:
    for words in (
        ["env.num_envs=8", "--config-name", "multi_env_wrist"],
        ["--config-name", "multi_env_wrist", "num_train_envs=8"],
    ):
        assert values(resolved(*words), "env.num_envs", "trainer.batch_size") == [8, 8 * 512]
    both = resolved("--config-name", "multi_env_wrist", "trainer.batch_size=1024")
    assert both.config.trainer.batch_size == 1024
    shorter = resolved("--config-name", "multi_env_wrist", "train.num_steps=64")
    assert shorter.config.trainer.batch_size == 256
    assert (
        resolved("--config-name", "multi_env_wrist", "env.use_wrist_cam=false").config.env.name == "lift_cube"
    )


@needs_robots
def test_each_word_works_and_is_explained_in_a_line() -> None:
    done = resolved("env.use_wrist_cam=true", "image.size=84", "num_train_envs=8", "train.num_steps=128")
    paths = ("env.name", "env.image.size", "env.num_envs", "trainer.batch_size")
    assert values(done, *paths) == ["lift_cube_wrist", 84, 8, 1024]
    assert [note for note in done.notes if " means " in note] == [
        "env.use_wrist_cam=true means env=lift_cube_wrist",
        "image.size=84 means env.image.size=84",
        "num_train_envs=8 means env.num_envs=8",
        "train.num_steps=128 means trainer.batch_size=1024: 128 steps of 8 agents",
    ]


def test_steps_are_of_agents() -> None:
    done = resolved(
        "env=counter", "env.num_envs=6", "env.agents_per_env=2", "train.num_steps=32", "policy=mlp"
    )
    assert done.config.trainer.batch_size == 6 * 2 * 32


def test_the_viewer_is_explained() -> None:
    assert translate(["env.show_viewer=true"]).notes == [
        "env.show_viewer=true means MuJoCo's window on environment 0"
    ]
    assert translate(["env.show_viewer=true"]).words == ["env.show_viewer=true"]
    assert translate(["env.show_viewer=false", "env=ant"]).notes == []


@pytest.mark.parametrize(("words", "message"), [
    (["--config-name", "multi_env_wirst"], "did you mean 'multi_env_wrist'"),
    (["--config-name"], "expected multi_env_wrist"),
    (["train.num_steps=0"], "whole number of at least 1"),
    (["train.num_steps=1.5"], "whole number of at least 1"),
    (["train.num_steps="], "whole number of at least 1"),
    (["env.use_wrist_cam=maybe"], "expected true or false"),
    (["num_train_envs=many"], "env.num_envs=many"),
    (["image.sze=64"], "did you mean 'env.image.size'"),
    (["env=counter", "train.num_steps=8", "trainer.batch_size=64"], "leave one of them out"),
])  # fmt: skip
def test_mistakes_are_named(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("'", ".")):
        resolved(*words)


def test_words_of_ours_are_left_alone() -> None:
    words = ["env=grid", "trainer.gamma=0.9", "--config-dir", "x", "policy.image_encoder=impala"]
    assert (translate(words).words, translate(words).notes, translate(words).horizon) == (words, [], None)
    assert list(CONFIGS) == ["multi_env_wrist"]
