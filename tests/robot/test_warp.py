"""Robots on MuJoCo Warp (envs/robot/warp) beside our CPU physics: from the same state, and in distribution.

On Warp's CPU device a robot of three joints compiles for 20 s once (WARP_CACHE_PATH keeps it). On a GPU:

    python -m pytest -m gpu tests/robot/test_warp.py
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")
pytest.importorskip("mujoco_warp")

from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.env import RobotFactory, RobotSim
from metta_fast.envs.robot.warp.vector import WarpVector
from tests.interpreter import gpu
from tests.rollout.test_device_envs import made
from tests.vector.device_suite import HORIZON, attached, check, play, tape_for

DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=gpu)]
ROBOT = "inverted_double_pendulum"
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
"""Of observations and rewards up to an end, 5 … 8 steps of 5 substeps: float32 beside doubles (3e-6 was seen)."""


def vector(device: str, envs: int, first: int = 0, total: int = 0, **keys: Any) -> WarpVector:
    factory = RobotFactory(keys.pop("task", ROBOT), **keys)
    where = torch.device(device, 0) if device == "cuda" else torch.device(device)
    vec = factory.make_device_vector(envs, where, first, total or first + envs)
    assert isinstance(vec, WarpVector)
    return vec


def test_the_contract() -> None:
    def make(num_envs: int, first_env: int, total_envs: int) -> DeviceVector:
        return vector("cpu", num_envs, first_env, total_envs, max_steps=7)

    check(make, length=2 * HORIZON, envs=3)


def beside(
    vec: WarpVector, robot: str, steps: int, atol: float, **keys: Any
) -> list[dict[str, torch.Tensor]]:
    """Steps the vector and the same robots on the CPU; their rows are the same."""
    b = attached(vec)
    vec.async_reset(7)
    tape, last = tape_for(vec.spec, vec.num_agents, steps), b.horizon
    first = b.obs["obs"][last].cpu().numpy().copy()
    rows = play(vec, b, tape)
    for i in range(vec.num_envs):
        sim = RobotSim(robot, seed=7, env_id=i, **keys)
        np.testing.assert_allclose(first[i], sim.reset(), rtol=0, atol=1e-6)
        for t, row in enumerate(rows):
            obs, reward, terminal, truncation, _ = sim.step(tape[t, i].numpy())
            np.testing.assert_allclose(row["obs"][i], obs, rtol=1e-4, atol=atol, err_msg=f"row {t}")
            for name in vec.spec.privileged:
                seen, theirs = row[name][i], sim.rows.obs[name][0]
                np.testing.assert_allclose(
                    seen, theirs, rtol=1e-3, atol=10 * atol, err_msg=f"{name}, row {t}"
                )
            assert row["reward"][i].item() == pytest.approx(reward, abs=atol, rel=1e-4)
            flags = [row[name][i].item() for name in ("terminal", "truncation", "mask", "reset")]
            assert flags == [terminal, truncation, sim.rows.mask[0], sim.rows.reset[0]], f"row {t}"
    return rows


@pytest.mark.parametrize("device", DEVICES)
def test_steps_ends_and_new_episodes_are_those_of_the_cpu(device: str) -> None:
    """Until errors have grown: two ends of each robot, with its next start, which depends on seed, id and episode."""
    rows = beside(vector(device, 3), ROBOT, 15, 1e-4)
    assert sum(row["terminal"].sum() for row in rows) >= 3


@pytest.mark.parametrize("device", DEVICES)
def test_the_critic_sees_what_it_sees_on_the_cpu(device: str) -> None:
    rows = beside(vector(device, 3, privileged=True), ROBOT, 15, 1e-4, privileged=True)
    sizes = 3 + 2 * 3 + 6 * 3
    assert rows[0]["privileged"].shape == (3, sizes)
    assert (rows[0]["privileged"][:, 6:9] != 0).any()  # the motor's force on the cart


@pytest.mark.gpu
def test_the_critic_of_an_ant_sees_what_it_sees_on_the_cpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    beside(vector("cuda", 4, task="ant", privileged=True), "ant", 1, 2e-2, privileged=True)


@pytest.mark.parametrize("device", DEVICES)
def test_a_time_limit_is_a_truncation(device: str) -> None:
    rows = beside(vector(device, 2, max_steps=2), ROBOT, 7, 1e-4, max_steps=2)
    assert [row["truncation"].all().item() for row in rows] == [False, True, False, False, True, False, False]
    assert rows[1]["stats"].shape == (2, 5)
    assert (rows[1]["stats"][:, -2:] == 0).all()
    limit = {"max_steps": 2, "limit_is_terminal": True}
    assert beside(vector(device, 2, **limit), ROBOT, 3, 1e-4, **limit)[1]["terminal"].all()


@pytest.mark.gpu
@pytest.mark.parametrize("robot", ["ant", "reacher", "lift_cube"])
def test_other_robots_start_as_on_the_cpu(robot: str) -> None:
    """One step, before errors grow with contacts."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    vec = vector("cuda", 4, task=robot)
    beside(vec, robot, 1, 2e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_episodes_are_as_long_as_on_the_cpu(device: str) -> None:
    """Episodes that 96 robots end in 36 steps of random actions, from other starts: within four standard errors."""
    vec, steps = vector(device, 96), 36
    tape = tape_for(vec.spec, 96, steps)
    b = attached(vec)
    vec.async_reset(1)
    ours = torch.stack([row["done"] for row in play(vec, b, tape)]).sum(0).numpy()
    theirs = np.zeros(96)
    for i in range(96):
        sim = RobotSim(ROBOT, seed=99, env_id=i)
        sim.reset()
        for t in range(steps):
            theirs[i] += sim.step(tape[t, i].numpy())[2]
    error = ((ours.var() + theirs.var()) / 96) ** 0.5
    assert abs(ours.mean() - theirs.mean()) < 4 * error, (ours.mean(), theirs.mean(), error)


def test_first_episodes_are_staggered() -> None:
    vec = vector("cpu", 4, max_steps=4, reset_noise_scale=0)
    b = attached(vec)
    vec.async_reset(0, stagger=True)
    rows = play(vec, b, torch.zeros(4, 4, 1))
    assert torch.stack([row["truncation"] for row in rows]).tolist() == np.eye(4, dtype=bool)[::-1].tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("privileged", [False, True])
def test_an_unstable_simulation_ends_its_episode_and_is_named(device: str, privileged: bool) -> None:
    vec = vector(device, 3, privileged=privileged)
    b = attached(vec)
    vec.async_reset(0)
    vec.physics.arrays["qvel"][1] = float("nan")
    rows = play(vec, b, torch.zeros(2, 3, 1))
    assert rows[0]["terminal"].tolist() == [False, True, False]
    for name in vec.spec.obs:
        assert torch.equal(rows[0][name][1], b.obs[name][0, 1].cpu())  # the last that was finite
    assert rows[0]["stats"][0, -1] == 1
    assert rows[1]["reset"].tolist() == [False, True, False]
    assert all(row["obs"].isfinite().all() for row in rows)
    assert [note.partition(". ")[0] for note in vec.notes()] == [
        f"environment 1 ({ROBOT}): the simulation became unstable"
    ]
    assert vec.notes() == []


def test_it_ends_the_run_if_asked() -> None:
    vec = vector("cpu", 3, first=5, on_unstable="stop")
    b = attached(vec)
    vec.async_reset(0)
    vec.physics.arrays["qvel"][1] = float("inf")
    play(vec, b, torch.zeros(1, 3, 1))
    with pytest.raises(EnvError, match=r"environment 6 .*unstable.*on_unstable=stop"):
        vec.notes()


def test_what_does_not_fit_is_counted_and_named_once() -> None:
    vec = vector("cpu", 3, max_steps=3)
    b = attached(vec)
    vec.async_reset(0)
    for _ in range(2):
        vec.physics.arrays["overflow"][2] |= 1  # OverflowType.NEFC
        rows = play(vec, b, torch.zeros(1, 3, 1))
    rows = play(vec, b, torch.zeros(1, 3, 1), at=2)
    assert rows[0]["stats"][:, -2].tolist() == [0, 0, 2]
    (note,) = vec.notes()
    assert note.startswith(
        f"environment 2 ({ROBOT}): more constraints (env.params.njmax) than there is room for"
    )
    assert vec.notes() == []


def test_only_short_rollouts_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of a long one would take Warp seconds to capture."""
    for preset, forwards in (("exact", 20), ("fast", 10), ("loose", 5)):
        vec = vector("cpu", 1, preset=preset)
        assert vec.physics.simulation.forwards == forwards
        for most, short in ((forwards * HORIZON, True), (forwards * HORIZON - 1, False)):
            monkeypatch.setattr("metta_fast.envs.robot.warp.vector.MOST_FORWARDS", most)
            attached(vec)
            assert vec.capturable is short


@pytest.mark.parametrize("privileged", [False, True])
def test_it_learns_through_the_rollout(privileged: bool) -> None:
    """Rows of DevicePPO's buffers, masked as the contract says; with a critic that sees more."""
    factory: Any = RobotFactory(ROBOT, privileged=privileged)
    ppo = made(factory, 4, horizon=8, policy={"shared": False, "normalize_obs": True})
    for _ in range(2):
        ppo.collect()
        ppo.update()
    assert all(leaf.isfinite().all() for leaf in ppo.buffers.obs.values())
    assert len(ppo.buffers.obs) == 1 + privileged
    assert torch.equal(ppo.buffers.mask[1:], ~(ppo.buffers.terminal | ppo.buffers.truncation))


@pytest.mark.parametrize(("preset", "substeps"), [("fast", 10), ("loose", 5)])
def test_other_presets_keep_the_length_of_a_step(preset: str, substeps: int) -> None:
    """Runge-Kutta becomes Euler; time and what rules see of it stay."""
    vec = vector("cpu", 1, preset=preset)
    assert (vec.physics.simulation.substeps, vec.physics.mjm.opt.integrator) == (substeps, 0)
    assert vec.engine.world.dt == pytest.approx(5 * vec.engine.world.timestep) == pytest.approx(0.05)
    attached(vec)
    (first, second) = vec.notes()
    assert first.startswith(f"{ROBOT}: preset={preset}: Euler's method with a timestep of")
    assert second.endswith("at most 4 iterations of the constraint solver")


@pytest.mark.parametrize("words", ["", "Failed to allocate 9 bytes on device 'cuda:0'"])
def test_robots_that_do_not_fit_memory_are_refused(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond Warp's arrays, and beyond the memory."""
    if words:

        def no_memory(*_: Any, **__: Any) -> None:
            raise RuntimeError(words)

        monkeypatch.setattr("mujoco_warp.make_data", no_memory)
    with pytest.raises(UserError, match=r"env\.num_envs=2000000000: these robots do not fit .*give fewer"):
        vector("cpu", 2_000_000_000)


def test_a_model_that_warp_cannot_step_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metta_fast.envs.robot.env import model_path

    own = tmp_path / "own.xml"
    text = model_path("inverted_pendulum.xml").read_text()
    own.write_text(
        text.replace("<worldbody>", '<option noslip_iterations="3" integrator="discrete"/><worldbody>', 1)
    )
    with pytest.raises(UserError, match=r"own\.xml: MuJoCo Warp cannot step <option noslip_iterations"):
        vector("cpu", 1, task="inverted_pendulum", xml_file=str(own))
    monkeypatch.setattr("metta_fast.envs.robot.warp.unsupported.problem", lambda *_: None)
    with pytest.raises(
        UserError, match=r"own\.xml: MuJoCo Warp cannot step this model: noslip.*type env\.device=cpu"
    ):
        vector("cpu", 1, task="inverted_pendulum", xml_file=str(own))


def test_mujoco_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Its warnings on Gymnasium's own models are not the user's concern."""
    import mujoco

    from metta_fast.envs.robot.env import model_path
    from metta_fast.envs.robot.warp.simulation import quiet_mujoco

    monkeypatch.chdir(tmp_path)  # it writes MUJOCO_LOG.TXT too
    for quiet in (True, False):
        with quiet_mujoco() if quiet else nullcontext():
            mujoco.MjModel.from_xml_path(str(model_path("half_cheetah.xml")))
        out, err = capfd.readouterr()
        assert ("deprecated" in out + err) is not quiet
