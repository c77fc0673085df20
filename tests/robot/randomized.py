"""Domain randomisation in plain Python: what an episode draws, and MuJoCo's own model changed by hand as it says."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from metta_fast.contracts.env import Array
from tests.reference.philox import philox4x32

MASS, LINK_MASS, FRICTION, STRENGTH, LATENCY, NOISE, PUSH, KINDS = range(1, 9)
COLOR, LIGHT, LIGHT_TURN, CAMERA, CAMERA_TURN = range(1 << 31, (1 << 31) + 5)


class Draws:
    """The numbers of one episode of one environment."""

    def __init__(self, seed: int, env: int, episode: int) -> None:
        self.key, self.env, self.episode = (seed & 0xFFFFFFFF, seed >> 32), env, episode

    def word(self, kind: int, step: int, index: int) -> int:
        counter = (self.env, self.episode, (kind + KINDS * step) & 0xFFFFFFFF, index // 4)
        return int(philox4x32(counter, self.key)[index % 4])

    def unit(self, kind: int, step: int, index: int) -> np.float32:
        return np.float32((self.word(kind, step, index) >> 8) * 2.0**-24)

    def factor(self, kind: int, ends: Any, index: int = 0) -> np.float32:
        if ends is None:
            return np.float32(1)
        low, high = np.float32(ends[0]), np.float32(ends[1])
        return np.float32(np.longdouble(high - low) * np.longdouble(self.unit(kind, 0, index)) + low)

    def within(self, kind: int, most: float, index: int) -> float:
        """-most … most."""
        return float(2 * np.float32(most) * self.unit(kind, 0, index) - np.float32(most))

    def turn(self, kind: int, most: float, index: int) -> Array:
        """A quaternion of an angle of at most `most`."""
        found = np.array(
            [1, *(self.within(kind, most / 2 / np.sqrt(3), 3 * index + axis) for axis in range(3))]
        )
        return found / np.linalg.norm(found)

    def latency(self, ends: tuple[int, int]) -> int:
        return ends[0] + (self.word(LATENCY, 0, 0) * (ends[1] - ends[0] + 1) >> 32)

    def noise(self, size: int, step: int) -> Array:
        """Standard normal numbers, to single precision."""
        pairs = [
            (self.unit(NOISE, step, i) + 2.0**-25, 2 * np.pi * self.unit(NOISE, step, i + 1))
            for i in range(0, size, 2)
        ]
        found = [
            np.sqrt(-2 * np.log(float(u))) * f(float(angle)) for u, angle in pairs for f in (np.cos, np.sin)
        ]
        return np.array(found[:size])

    def push(self, speed: float, every: float, step: int) -> tuple[float, float] | None:
        """The change of velocity along x and y before a step, or None."""
        if not self.unit(PUSH, step, 0) < np.float32(1 / every):
            return None
        size, angle = speed * self.unit(PUSH, step, 1), 2 * np.pi * self.unit(PUSH, step, 2)
        return float(size * np.cos(angle)), float(size * np.sin(angle))


def changed_model(path: str, draws: Draws, ranges: dict[str, Any]) -> Any:
    """MuJoCo's model of the file with the masses, friction and strength of an episode, and what follows from them."""
    model = mujoco.MjModel.from_xml_path(path)
    if "mass" in ranges or "link_mass" in ranges:
        for body in range(1, model.nbody):
            factor = draws.factor(MASS, ranges.get("mass")) * draws.factor(
                LINK_MASS, ranges.get("link_mass"), body
            )
            model.body_mass[body] *= np.float64(factor)
            model.body_inertia[body] *= np.float64(factor)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    factor = draws.factor(FRICTION, ranges.get("friction"))
    model.geom_friction[:, 0] *= np.float64(factor)
    model.pair_friction[:, :2] *= np.float64(factor)
    for actuator in range(model.nactuator):
        factor = draws.factor(STRENGTH, ranges.get("strength"), actuator)
        scaled = slice(3)
        if model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_MUSCLE:
            scaled = slice(2, 3) if model.actuator_gainprm[actuator, 2] >= 0 else slice(3, 4)
        model.actuator_gainprm[actuator, scaled] *= np.float64(factor)
        model.actuator_biasprm[actuator, scaled] *= np.float64(factor)
        model.actuator_forcerange[actuator] *= np.float64(factor)
    return model


def changed_look(model: Any, draws: Draws, ranges: dict[str, Any]) -> None:
    """Changes a model of MuJoCo's to what it looks like in an episode."""
    colours = [*model.geom_rgba, *model.mat_rgba]
    unset = np.append(
        (model.geom_rgba == [0.5, 0.5, 0.5, 1]).all(1) & (model.geom_matid >= 0), [False] * model.nmat
    )
    for i, rgba in enumerate(colours):
        if unset[i]:
            continue
        factors = [draws.factor(COLOR, ranges.get("color"), 4 * i + channel) for channel in range(3)]
        rgba[:3] = np.minimum(rgba[:3] * factors, 1)
    for i in range(model.nlight):
        for array in (model.light_ambient, model.light_diffuse, model.light_specular):
            array[i] *= draws.factor(LIGHT, ranges.get("light"), i)
        for array in (model.light_dir, model.light_dir0):
            mujoco.mju_rotVecQuat(
                array[i], array[i].copy(), draws.turn(LIGHT_TURN, ranges.get("light_turn", 0), i)
            )
    for i in range(model.ncam):
        moved = [draws.within(CAMERA, ranges.get("camera", 0), 3 * i + axis) for axis in range(3)]
        for array in (model.cam_pos, model.cam_pos0, model.cam_poscom0):
            array[i] += moved
        turn, matrix = draws.turn(CAMERA_TURN, ranges.get("camera_turn", 0), i), np.zeros(9)
        mujoco.mju_mulQuat(model.cam_quat[i], model.cam_quat[i].copy(), turn)
        mujoco.mju_quat2Mat(matrix, turn)
        model.cam_mat0[i] = (model.cam_mat0[i].reshape(3, 3) @ matrix.reshape(3, 3)).reshape(-1)
