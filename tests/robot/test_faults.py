"""Tests failures with robots: unstable and broken simulations, another MuJoCo version, wrong models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

from metta_fast.cli import main
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.envs.robot.env import RobotFactory, RobotSim, model_path
from metta_fast.machine.installation import install_extra
from metta_fast.metrics.loggers import read_rows
from metta_fast.vector import WorkerError, make_vector
from tests.robot.test_batch import ROOT, batch_of
from tests.tiny import QUIET, named
from tests.vector.suite import BACKENDS

ENVS = 6
TASK = "half_cheetah"


def cheetah(folder: Path, *, memory: str = "10M", boxes: int = 0, timestep: str = "0.01") -> str:
    """A half cheetah's model with so much memory for contacts, and a pile of boxes that fall apart."""
    pile = "".join(
        f'<body pos="8 0 {0.1 * i + 0.05}"><freejoint/>'
        '<geom type="box" size=".1 .1 .1" mass="1" contype="1" conaffinity="1"/></body>'
        for i in range(boxes)
    )
    text = re.sub(r"<size[^>]*/>", "", model_path("half_cheetah.xml").read_text())
    text = text.replace("</worldbody>", f'{pile}</worldbody><size memory="{memory}"/>')
    file = folder / "own.xml"
    file.write_text(re.sub('timestep="[^"]*"', f'timestep="{timestep}"', text))
    return str(file)


def vector(factory: RobotFactory, **keys: Any) -> Any:
    given = {"num_workers": 1, "num_threads": 1, **keys}
    return make_vector(factory, ENVS, num_blocks=2, worker_timeout_s=60.0, **given)


def run(vec: Any, steps: int) -> None:
    """So many steps of every block with random actions; all blocks are held afterwards."""
    rng = np.random.default_rng(0)
    vec.async_reset(0)
    for _ in range(steps):
        for block in vec.hold_all():
            vec.send(block, rng.uniform(-1, 1, (block.size, 6)).astype(np.float32))
    vec.hold_all()


@pytest.mark.parametrize("keys", BACKENDS.values(), ids=BACKENDS)
def test_an_unstable_simulation_is_told_counted_and_starts_anew(tmp_path: Path, keys: dict[str, Any]) -> None:
    factory = RobotFactory(TASK, xml_file=cheetah(tmp_path, timestep="0.1"), max_steps=50, quiet=True)
    with vector(factory, **keys) as vec:
        run(vec, 100)
        (told,) = vec.notes()
        assert re.match(
            r"environment \d \(half_cheetah\), step \d+ of its episode: the simulation became", told
        )
        assert "Nan, Inf or huge value in Q" in told  # MuJoCo's words
        assert "env.params.on_unstable=stop" in told
        assert np.isfinite(vec.rows.obs["obs"]).all()
        assert vec.rows.stats[:, -1].max() == 1
        run(vec, 60)
        assert vec.notes() == []


@pytest.mark.parametrize("keys", BACKENDS.values(), ids=BACKENDS)
def test_an_unstable_simulation_stops_the_run_where_that_is_asked_for(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    xml = cheetah(tmp_path, timestep="0.1")
    factory = RobotFactory(TASK, xml_file=xml, on_unstable="stop", quiet=True)
    vec = vector(factory, **keys)
    with pytest.raises(WorkerError, match=r"simulation became unstable .*on_unstable=stop") as caught:
        run(vec, 100)
    assert f"environment {caught.value.env} (half_cheetah)" in str(caught.value)
    vec.close()


@pytest.mark.parametrize("keys", BACKENDS.values(), ids=BACKENDS)
def test_mujocos_fatal_error_is_an_exception_that_names_the_environment(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    """MuJoCo itself would end the process."""
    vec = vector(RobotFactory(TASK, xml_file=cheetah(tmp_path, memory="9K"), quiet=True), **keys)
    with pytest.raises(WorkerError, match=r"MuJoCo cannot go on: mj_stackAlloc: out of memory") as caught:
        run(vec, 200)
    assert f"environment {caught.value.env} (half_cheetah), step " in str(caught.value)
    assert "own.xml" in str(caught.value)
    vec.close()


def test_a_fatal_error_in_a_reset_is_an_exception(tmp_path: Path) -> None:
    factory = RobotFactory(TASK, xml_file=cheetah(tmp_path, memory="20K", boxes=12), quiet=True)
    batch, _ = batch_of(factory, 2)
    with pytest.raises(EnvError, match=r"environment 0 .*step 0 .* cannot go on"):
        batch.reset(0)
    other, _ = batch_of(factory, 2)
    with pytest.raises(EnvError, match=r"environment 1 .*cannot go on"):
        other.set_state(1, *other.get_state(1))


def test_contacts_that_do_not_fit_are_told_once_and_counted(tmp_path: Path, caplog: Any) -> None:
    xml = cheetah(tmp_path, memory="40K", boxes=12)
    sim = RobotSim(TASK, xml_file=xml, max_steps=20, quiet=True)
    sim.reset()
    for _ in range(20):
        sim.step(np.zeros(6, np.float32))
    stats = dict(zip(sim.factory.spec.stats, sim.rows.stats[0].tolist()))
    assert stats["warnings"] >= 40  # contacts and constraints, in most substeps
    assert stats["unstable"] == 0
    assert caplog.text.count("Too many contacts") == 1
    assert caplog.text.count("number of constraints") == 1
    assert xml in caplog.text
    state = sim.batch.state_dict()
    again = sim.factory.make_batch(0, 1, 1)
    again.load_state_dict(state)
    np.testing.assert_array_equal(again.robots, sim.batch.robots)  # the count goes on with a resumed run


def test_without_trouble_nothing_is_told() -> None:
    with vector(RobotFactory(TASK)) as vec:
        run(vec, 20)
        assert vec.notes() == []


@pytest.mark.parametrize("keys", BACKENDS.values(), ids=BACKENDS)
def test_an_action_that_is_not_finite_is_refused_and_can_be_mended(keys: dict[str, Any]) -> None:
    with vector(RobotFactory(TASK), **keys) as vec:
        vec.async_reset(0)
        blocks = vec.hold_all()
        actions = np.zeros((blocks[1].size, 6), np.float32)
        for value in (np.nan, -np.inf):
            actions[1, 4] = value
            with pytest.raises(
                NonFiniteError, match=rf"action is {value} in environment 4 \(agent 0 of it, entry 4"
            ):
                vec.send(blocks[1], actions)
        vec.send(blocks[1], np.zeros_like(actions))
        vec.hold_all()


SIZES = [
    "env.num_envs=4",
    "trainer.batch_size=256",
    "trainer.total_timesteps=1000",
    "trainer.update_epochs=1",
]


def train(folder: Path, *words: str) -> int:
    shown = [*QUIET, "run.dashboard=plain", *named(folder)]
    return main(["train", f"env={TASK}", *SIZES, *shown, *words])


def test_training_tells_of_instability_in_its_log_and_goes_on_or_stops(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    xml = f"env.params.xml_file={cheetah(tmp_path, timestep='0.1')}"
    assert train(tmp_path / "on", xml, "env.max_steps=40") == 0
    assert (tmp_path / "on/r/train.log").read_text().count("warning: environment ") == 1
    assert capfd.readouterr().err.count("became unstable") == 1
    assert any(row.get("env/unstable", 0) > 0 for row in read_rows(tmp_path / "on/r/metrics.jsonl"))
    assert train(tmp_path / "off", xml, "env.max_steps=40", "env.params.on_unstable=stop") == 1
    assert "error: environment " in (told := capfd.readouterr().err)
    assert "Traceback" not in told
    assert not list(tmp_path.glob("MUJOCO_LOG.TXT"))


def test_a_wrong_choice_is_named_before_work_starts(tmp_path: Path, capfd: Any) -> None:
    assert train(tmp_path, "env.params.on_unstable=ignore") == 2
    assert "on_unstable='ignore': expected reset or stop" in capfd.readouterr().err
    (tmp_path / "own.xml").write_text(
        "<mujoco><worldbody><body><geom type='cube'/></body></worldbody></mujoco>"
    )
    assert train(tmp_path, f"env.params.xml_file={tmp_path / 'own.xml'}") == 2
    told = capfd.readouterr().err
    assert "own.xml: MuJoCo cannot load this model: XML Error" in told
    assert "invalid keyword: 'cube'" in told
    assert "Traceback" not in told


def imported(folder: Path) -> str:
    """What `import metta_fast.envs.robot` says where `mujoco` is the package in `folder`."""
    script = "try:\n import metta_fast.envs.robot\nexcept Exception as e: print(type(e).__name__, e)"
    path = os.pathsep.join((str(folder), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("libmujoco.so.3.4.0", "holds 3.4.0"),
        (None, "holds none of its libraries"),
        ("libmujoco.so.4.0.0", "whose library cannot be loaded"),
    ],
)
def test_another_mujoco_is_named_with_the_one_that_is_needed(
    tmp_path: Path, library: str | None, message: str
) -> None:
    (tmp_path / "mujoco").mkdir()
    (tmp_path / "mujoco/__init__.py").write_text("")
    if library:
        (tmp_path / "mujoco" / library).write_text("not a library")
    told = imported(tmp_path)
    assert told.startswith("UserError robots need MuJoCo 4.0.0")
    assert message in told
    assert install_extra("robots") in told


def test_a_build_for_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import metta_fast.envs.robot as package
    from metta_fast.envs.robot import _robot

    monkeypatch.setattr(_robot, "versions", lambda: (3_004_001, 4_000_000))
    with pytest.raises(UserError, match=r"built for MuJoCo 3\.4\.1, the one that is loaded is 4\.0\.0"):
        package._check()
