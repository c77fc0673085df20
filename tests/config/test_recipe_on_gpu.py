"""Tests a recipe's section on_gpu: when its values hold, who wins, what --explain says and what is refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from metta_fast.config.keys import get
from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.config_files import CONFIGS, options
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import Resolved, resolve

LAPTOP = Machine(4, 8, 16 * GIB)
CARD = Machine(16, 64, 128 * GIB, (Gpu("NVIDIA H200", 139 * GIB, (9, 0)),), "cuda", driver=(13, 0), nvrtc=13)
MINE = """\
# @package _global_
defaults: [breakout, _self_]
env: {name: mine}
trainer: {batch_size: 2048, minibatch_size: 512, gamma: 0.9}
on_gpu:
  env: {num_envs: 512}
  trainer: {batch_size: 16384, minibatch_size: 4096}
  policy: {hidden_size: 64, core: none}
"""


def resolved(tmp_path: Path, *words: str, machine: Machine = CARD, mine: str = MINE) -> Resolved:
    folder = tmp_path / "env"
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text(mine)
    return resolve(
        compose(["--config-dir", str(tmp_path), "env=mine", *words], machine=machine), machine=machine
    )


def told(done: Resolved, path: str) -> tuple[object, str]:
    return get(done.config, path), done.origins[path]


@pytest.mark.parametrize("words", [["env.device=cuda"], ["env.device=auto"], []])
def test_they_hold_on_the_gpu_typed_or_chosen(tmp_path: Path, words: list[str]) -> None:
    done = resolved(tmp_path, "hardware=h200", *words)
    assert done.config.env.device == "cuda"
    why = "command line" if words == ["env.device=cuda"] else "auto: breakout has a GPU engine"
    assert done.origins["env.device"] == why
    assert told(done, "env.num_envs") == (512, "env/mine, on_gpu")
    assert told(done, "trainer.batch_size") == (16384, "env/mine, on_gpu")
    assert told(done, "trainer.gamma") == (0.9, "env/mine")
    assert "trainer.minibatch_size=4096" in (text := explain_text(done))
    assert "# env/mine, on_gpu" in text


def test_elsewhere_the_plain_values_hold(tmp_path: Path) -> None:
    for done in (
        resolved(tmp_path, "hardware=h200", "env.device=cpu"),
        resolved(tmp_path, "hardware=cpu", machine=LAPTOP),
    ):
        assert told(done, "trainer.minibatch_size") == (512, "env/mine")
        assert "on_gpu" not in explain_text(done)


def test_typed_keys_and_later_groups_win(tmp_path: Path) -> None:
    done = resolved(tmp_path, "hardware=h200", "policy=lstm", "env.num_envs=256", "trainer.batch_size=8192")
    assert told(done, "env.num_envs") == (256, "command line")
    assert told(done, "trainer.batch_size") == (8192, "command line")
    assert told(done, "trainer.minibatch_size") == (4096, "env/mine, on_gpu")
    assert told(done, "policy.core") == ("lstm", "policy/lstm")


def test_a_recipe_inherits_them_and_its_own_plain_values_are_for_the_cpu(tmp_path: Path) -> None:
    own = tmp_path / "env" / "own.yaml"
    own.parent.mkdir()
    own.write_text(
        "# @package _global_\ndefaults: [mine, _self_]\ntrainer: {minibatch_size: 256}\n"
        "on_gpu: {trainer: {batch_size: 32768}}\n"
    )
    done = resolved(tmp_path, "hardware=h200", "env=own")
    assert told(done, "trainer.minibatch_size") == (4096, "env/mine, on_gpu")
    assert told(done, "trainer.batch_size") == (32768, "env/own, on_gpu")
    assert told(done, "env.num_envs") == (512, "env/mine, on_gpu")


def test_the_recipe_in_the_folder_of_an_environment_in_c_has_them_too(tmp_path: Path) -> None:
    folder = tmp_path / "walk"
    folder.mkdir()
    (folder / "walk.yaml").write_text("env: {num_envs: 8}\non_gpu: {env: {num_envs: 1024}}\n")
    composed = compose([f"env.path={folder}"])
    assert composed.config.env.num_envs == 8
    assert composed.on_gpu.values["env.num_envs"][:2] == (1024, f"{folder / 'walk.yaml'}, on_gpu")


@pytest.mark.parametrize(("section", "message"), [
    ("on_gpu: 3", "env/mine: on_gpu: expected 'key: value' lines, as in a recipe"),
    ("on_gpu: {trainer: {batchsize: 1}}", "env/mine: on_gpu: unknown key 'trainer.batchsize'; did you mean"),
    ("on_gpu: {trainer: {batch_size: x}}", "env/mine: on_gpu: trainer.batch_size=x: expected a whole number"),
    ("on_gpu: {env: {device: cpu}}", "env/mine: on_gpu: env.device cannot be set here; set it in the recipe"),
])  # fmt: skip
def test_a_mistake_names_the_file_and_the_section(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolved(
            tmp_path, "env.device=cpu", mine=f"# @package _global_\ndefaults: [breakout, _self_]\n{section}\n"
        )
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_every_robot_has_thousands_on_the_gpu() -> None:
    robots = [env for env in options("env") if "- robot" in (CONFIGS / "env" / f"{env}.yaml").read_text()]
    assert {"ant", "humanoid", "hopper", "swimmer"} <= set(robots)
    for env in robots:
        composed = compose([f"env={env}", "env.device=cuda"])
        assert composed.config.env.num_envs <= 64
        config, origins = composed.on_gpu.given(composed.config, composed.origins)
        assert config.env.num_envs >= 1024
        assert config.trainer.batch_size % config.env.num_envs == 0
        assert config.trainer.batch_size % config.trainer.minibatch_size == 0
        assert origins["env.num_envs"].endswith(", on_gpu")


@pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="needs MuJoCo Warp")
def test_a_robot_stays_on_the_cpu_unless_asked() -> None:
    there = resolve(compose(["hardware=h200", "env=ant", "env.device=cuda"]), machine=CARD)
    here = resolve(compose(["hardware=h200", "env=ant"]), machine=CARD)
    assert (there.config.env.num_envs, here.config.env.num_envs) == (4096, 32)
    assert there.origins["trainer.minibatch_size"] == "env/robot, on_gpu"
    assert here.config.env.device == "cpu"
