"""What robots on the GPU need before Warp is there: packages, options, and the task headers compiled by NVRTC."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from string import Template

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env_answers import gpu_keys
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.robot.env import TASKS, RobotFactory
from metta_fast.envs.robot.warp import _rules, packages
from metta_fast.envs.robot.warp.engine import ROBOT, Rows, World, float_record, source_of
from metta_fast.envs.robot.warp.how import TASKS as HEADERS
from metta_fast.envs.robot.warp.how import fields_read
from metta_fast.envs.robot.warp.simulation import DERIVED
from metta_fast.run.take_over.same_rules import unfit_states
from metta_fast.runtime.nvrtc.compile import compile_source
from metta_fast.scaffold import new_robot
from metta_fast.storage.checkpoint import Checkpoint
from tests.cuda.test_c_env import needs_nvrtc


def test_structs_have_the_same_size_in_python_and_c() -> None:
    assert (ctypes.sizeof(World), ctypes.sizeof(Rows)) == _rules.STRUCT_BYTES
    assert ROBOT.itemsize == _rules.ROBOT_BYTES


@pytest.mark.parametrize("task", TASKS)
def test_options_in_float32_have_the_headers_size(task: str) -> None:
    record = RobotFactory(task).record
    single = float_record(record)
    assert single.nbytes == _rules.task_facts(task)[0]
    for name in record.dtype.names:
        np.testing.assert_allclose(single[name], record[name], rtol=1e-6)


@needs_nvrtc
@pytest.mark.parametrize("task", TASKS)
def test_nvrtc_compiles_the_header(task: str) -> None:
    code = compile_source(source_of(task, float_record(RobotFactory(task).record).nbytes), 90)
    assert b".text.mf_world_step_kernel" in code


@needs_nvrtc
def test_nvrtc_compiles_what_new_robot_writes(tmp_path: Path) -> None:
    text = (Path(new_robot.__file__).parent / "templates/robot_header.txt").read_text()
    (tmp_path / "arm.h").write_text(Template(text).substitute(name="arm", guard="ARM"))
    source = source_of("arm", 12)
    assert compile_source(replace(source, include=(tmp_path, *source.include)), 90)


@pytest.mark.parametrize(
    ("task", "derived"),
    [
        ("half_cheetah", set()),
        ("hopper", set()),
        ("ant", {"xpos", "cfrc_ext"}),
        ("reacher", {"xpos"}),
        ("inverted_double_pendulum", {"site_xpos", "qfrc_constraint"}),
    ],
)
def test_fields_that_a_header_reads(task: str, derived: set[str]) -> None:
    assert fields_read(HEADERS / f"{task}.h") & set(DERIVED) == derived


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"warp-lang": None}, r"need MuJoCo Warp, and warp-lang is not installed; .*gpu"),
        ({"warp-lang": None, "mujoco-warp": None}, "and mujoco-warp and warp-lang are not installed"),
        ({"warp-lang": "1.20.0"}, r"fit each other: warp-lang is 1\.20\.0, expected 1\.19\.0; .*gpu"),
        ({"mujoco-core": "4.0.1"}, r"mujoco-core is 4\.0\.1, expected 4\.0\.0"),
    ],
)
def test_packages_that_do_not_fit_are_named(
    versions: dict[str, str | None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        found = versions.get(name, packages.VERSIONS[name])
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(UserError, match=message):
        RobotFactory("reacher").make_device_vector(1, torch.device("cpu"), 0, 1)


def test_a_resume_elsewhere_starts_new_episodes() -> None:
    start = Checkpoint(Path("x"), {"config": {"env": {"device": "cuda"}}}, frozenset())
    robot = RobotFactory("reacher")
    on = {device: EnvConfig(device=device) for device in ("cpu", "cuda")}
    assert unfit_states(start, robot, on["cpu"]) == "their state in the checkpoint is that of env.device=cuda"
    assert unfit_states(start, robot, on["cuda"]) == ""
    assert unfit_states(start, GridFactory(), on["cpu"]) == ""


def test_keys_for_the_gpu() -> None:
    factory = RobotFactory("reacher", preset="exact", njmax=40)
    assert gpu_keys(factory) == ("env.params.preset", "env.params.njmax")
    copy, arguments = factory.__reduce__()
    assert gpu_keys(copy(*arguments)) == ("env.params.preset", "env.params.njmax")
    for keys, message in (
        ({"preset": "exakt"}, "preset='exakt' is not known; did you mean"),
        ({"nconmax": 0}, "nconmax=0: expected a whole number"),
    ):
        with pytest.raises(UserError, match=message):
            RobotFactory("reacher", **keys)  # type: ignore[arg-type]
