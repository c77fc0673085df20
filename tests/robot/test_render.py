"""Tests pictures of robots: their content, and the message where nothing can be drawn."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

from metta_fast.cli import main
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot import render
from metta_fast.envs.robot.env import RobotFactory, RobotSim, model_path
from metta_fast.envs.robot.render import Renderer
from metta_fast.episodes import command, html
from tests.tiny import trained

NO_EGL = "__EGL_VENDOR_LIBRARY_DIRS"
"""Where libEGL looks for drivers: in an empty folder it finds none."""


@pytest.fixture(scope="module")
def ant() -> Any:
    """(simulation of an ant, its renderer)."""
    sim = RobotSim("ant")
    sim.reset()
    try:
        renderer = Renderer(sim.factory.model.path, 120, 160)
    except UserError as error:
        pytest.skip(str(error))
    with renderer:
        yield sim, renderer


def robot(picture: Array) -> Array:
    """bool [height, width]: where the ant's orange is; floor and sky have as much blue as red."""
    return np.asarray(picture[:, :, 0].astype(int) - picture[:, :, 2] > 40)


def test_a_picture_shows_the_robot_as_it_stands(ant: Any) -> None:
    sim, renderer = ant
    qpos, qvel = sim.batch.get_state(0)
    sim.set_state(qpos, qvel)
    first = renderer.render(sim.batch.physics(0))
    assert (first.dtype, first.shape) == (np.uint8, (120, 160, 3))
    assert 300 < robot(first).sum() < 6000
    np.testing.assert_array_equal(renderer.render(sim.batch.physics(0)), first)
    qpos[2] += 0.6
    sim.set_state(qpos, qvel)
    jumped = renderer.render(sim.batch.physics(0))
    floor = [np.flatnonzero(picture[:, 2].sum(1) < 60).size for picture in (first, jumped)]
    assert floor[0] != floor[1], "the camera follows the robot, so the floor moves"
    sim.reset()
    for _ in range(15):
        sim.step(np.ones(8, np.float32))
    assert (robot(renderer.render(sim.batch.physics(0))) != robot(first)).sum() > 50


def test_a_model_without_a_camera_is_shown_whole(tmp_path: Path, ant: Any) -> None:
    text = model_path("ant.xml").read_text()
    own = tmp_path / "ant.xml"
    own.write_text(re.sub(r"<camera[^>]*/>", "", text))
    with Renderer(str(own), 120, 160) as renderer:
        picture = renderer.render(ant[0].batch.physics(0))
    seen = robot(picture)
    assert seen.sum() > 200
    assert not seen[[0, -1]].any()
    assert not seen[:, [0, -1]].any()
    with pytest.raises(UserError, match="there is no camera 'side' in this model"):
        Renderer(str(own), camera="side")


def test_the_library_is_chosen_by_what_works(
    ant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ant[0].factory.model.path
    monkeypatch.setenv(NO_EGL, str(tmp_path))
    with pytest.raises(UserError) as caught:
        Renderer(model, libraries=("egl", "nonsense"))
    told = str(caught.value)
    assert told.startswith("robots cannot be drawn here (egl: ")
    assert "nonsense: RuntimeError: invalid value for environment variable MUJOCO_GL: nonsense" in told
    assert "apt-get install libegl1" in told
    assert "apt-get install libosmesa6" in told
    try:
        Renderer(model, libraries=("osmesa",)).close()
    except UserError:
        return
    with Renderer(model, 120, 160) as renderer:
        assert renderer.library == "osmesa"
        assert robot(renderer.render(ant[0].batch.physics(0))).sum() > 300
    monkeypatch.delenv(NO_EGL)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with Renderer(model) as renderer:
        assert renderer.library == "osmesa", "what the user asks for comes first"


def test_a_library_that_crashes_or_hangs_harms_nobody(
    ant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, model = ant[0], ant[0].factory.model.path
    renderer = Renderer(model, 120, 160)
    psutil.Process(renderer._process.pid).send_signal(signal.SIGSEGV)
    with pytest.raises(RuntimeError, match=r"draws robots .* ended: it ended with code -11"):
        renderer.render(sim.batch.physics(0))
    renderer.close()
    children = len(psutil.Process().children())
    bad = tmp_path / "child.py"
    monkeypatch.setattr(render, "CHILD", bad)
    monkeypatch.setattr(render, "START_S", 1.0)
    for script, why in (
        ("import os; os.abort()", "it ended with code -6"),
        ("import time; time.sleep(60)", "it hangs"),
        ("print('hello, world')", "its output is not pictures"),
        ("raise OSError('no such device')", "OSError: no such device"),
    ):
        bad.write_text(script)
        with pytest.raises(UserError, match=f"egl: {why}"):
            Renderer(model, libraries=("egl",))
    assert len(psutil.Process().children()) == children


def test_a_signal_while_the_process_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = tmp_path / "child.py"
    sleeps.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(render, "CHILD", sleeps)
    children = psutil.Process().children()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            Renderer(str(model_path("ant.xml")), libraries=("egl",))
    finally:
        signal.signal(signal.SIGINT, before)
    assert psutil.Process().children() == children
    del caught  # it held the renderer


def test_the_process_ends_with_its_renderer(ant: Any) -> None:
    renderer = Renderer(ant[0].factory.model.path)
    pid = renderer._process.pid
    del renderer
    assert not psutil.pid_exists(pid)


def test_a_run_is_replayed_as_video_picture_and_page(
    ant: Any, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    av: Any = pytest.importorskip("av")
    sizes = ("env.num_envs=4", "trainer.batch_size=256", "trainer.total_timesteps=300")
    run = trained(tmp_path, "env=hopper", "env.max_steps=40", *sizes)
    files = {name: tmp_path / f"a.{name}" for name in ("mp4", "png", "html", "json")}
    words = [
        "--video",
        files["mp4"],
        "--picture",
        files["png"],
        "--html",
        files["html"],
        "--json",
        files["json"],
    ]
    assert main(["replay", str(run), *map(str, words), "--step", "10"]) == 0
    recording = json.loads(files["json"].read_text())
    facts = recording["world"]["facts"]
    assert (facts["every"], facts["step_s"]) == (5, 0.008)
    with av.open(str(files["mp4"])) as file:
        stream = file.streams.video[0]
        assert float(stream.average_rate) == 25  # real time
        assert len(list(file.decode(stream))) == recording["steps"] // 5 + 1 == len(facts["images"])
    assert Image.open(files["png"]).size == (480, 360)
    assert '"film":' in files["html"].read_text()
    for module in (command, html):
        monkeypatch.setattr(module, "has_encoder", lambda: False)
    assert main(["replay", str(run), "--html", str(files["html"])]) == 0
    assert "data:image/jpeg" in files["html"].read_text()
    assert "MB of single pictures; PyAV would make it a film" in capfd.readouterr().err
    assert main(["replay", str(run), "--picture", str(files["png"]), "--step", "999"]) == 2
    assert "--step 999: the episode has" in capfd.readouterr().err
    assert main(["replay", str(run), "--picture", str(tmp_path / "a.xyz")]) == 2
    assert "a picture's name must end in .png or .jpg" in capfd.readouterr().err


def test_a_replay_where_nothing_can_draw_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "LIBRARIES", ("egl",))
    monkeypatch.setenv(NO_EGL, str(tmp_path))
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    factory = RobotFactory("hopper")
    with pytest.raises(UserError, match=r"robots cannot be drawn here .*apt-get install libosmesa6"):
        factory.make_recorder(factory.make_batch(0, 1, 1))
    assert os.environ.get("MUJOCO_GL") is None
