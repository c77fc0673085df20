"""Lifts the cube of env=lift_cube by a written controller, with inverse kinematics (damped least squares)."""

from __future__ import annotations

from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.robot.env import RobotSim

ABOVE, DOWN, CLOSED = 12, 25, 32
"""Steps until the gripper is above the cube, around it, and closed."""


class Controller:
    """Computes actions from the simulation's state.

    Args:
        model: mujoco.MjModel of the task.
    """

    def __init__(self, model: Any) -> None:
        import mujoco

        self.mujoco, self.model, self.data = mujoco, model, mujoco.MjData(model)
        self.tip, self.hand, self.cube = model.site("tip").id, model.body("hand").id, model.body("cube").id

    def act(self, qpos: Array, t: int, yaw: float) -> Array:
        """Returns the action of step t, float32 [7]. yaw: angle to which the gripper turns."""
        data, target = self.data, np.array([0.45, 0.0, 0.17])
        data.qpos[:] = qpos
        self.mujoco.mj_kinematics(self.model, data)
        self.mujoco.mj_comPos(self.model, data)
        if t < CLOSED:
            target[:2] = data.xpos[self.cube][:2]
            target[2] = 0.12 if t < ABOVE else 0.02
        speed = np.clip(6 * (target - data.site_xpos[self.tip]), -0.5, 0.5)
        c, s = np.cos(yaw), np.sin(yaw)
        off = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ data.xmat[self.hand].reshape(3, 3).T
        turn = 3 * np.array([off[2, 1] - off[1, 2], off[0, 2] - off[2, 0], off[1, 0] - off[0, 1]])
        jacobian = np.zeros((6, self.model.nv))
        self.mujoco.mj_jacSite(self.model, data, jacobian[:3], jacobian[3:], self.tip)
        arm = jacobian[:, :6]
        joints = arm.T @ np.linalg.solve(arm @ arm.T + 1e-3 * np.eye(6), np.concatenate([speed, turn]))
        return np.append(np.clip(joints, -1.5, 1.5), -0.15 if t < DOWN else 0.15).astype(np.float32)


def lift(sim: RobotSim, controller: Controller, *, closes: bool = True) -> dict[str, float]:
    """Plays one episode from its first row on, and returns its last info. closes: False leaves the gripper open."""
    qpos, _ = sim.batch.get_state(0)
    turned = 2 * np.arctan2(qpos[14], qpos[11])
    yaw = (turned + np.pi / 4) % (np.pi / 2) - np.pi / 4
    info: dict[str, float] = {}
    for t in range(sim.factory.max_steps):
        action = controller.act(sim.batch.get_state(0)[0], t, yaw)
        action[6] = action[6] if closes else -0.15
        *_, info = sim.step(action)
    return info
