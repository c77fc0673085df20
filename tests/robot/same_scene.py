"""Measures how pictures of one scene differ between MuJoCo's OpenGL and MuJoCo Warp's renderer, on the CPU.

    python -m tests.robot.same_scene --robot lift_cube --cameras wrist fixed --size 64 --states 16 [--out scene.png]

The states are of an arm from its start on, moved by random actions. Prints for each camera the mean difference of a
byte (0 … 255), and the share of pixels where a channel differs by more than 12.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import warp

from metta_fast.contracts.env import Array
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot.camera.factory import CameraFactory
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.warp.draw.context import CHANNELS, Context, Drawn


class Batched:
    """Draws states of a model with MuJoCo Warp's renderer on the CPU.

    Args:
        model: mujoco.MjModel.
    """

    def __init__(self, model: Any, drawn: Drawn) -> None:
        warp.config.log_level = warp.LOG_ERROR
        warp.init()
        self._model, self._data, self._drawn = model, mujoco.MjData(model), drawn
        with warp.ScopedDevice("cpu"):
            self._context = Context(model, drawn, 1)
            self._out = warp.zeros((1, drawn.size**2, CHANNELS[drawn.kind]), dtype=warp.uint8)
            self._there = mujoco_warp.put_model(model)

    def draw(self, state: Array) -> Array:
        """Returns what the cameras see of an integration state: uint8 [cameras, size, size, channels]."""
        model, data, size = self._model, self._data, self._drawn.size
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(model, data)
        each = []
        with warp.ScopedDevice("cpu"):
            self._context.draw(
                self._there, mujoco_warp.put_data(model, data, nworld=1, nconmax=64, njmax=256)
            )
            for camera in range(len(self._drawn.cameras)):
                self._context.write(camera, self._out)
                each.append(self._out.numpy()[0].reshape(size, size, -1).copy())
        return np.stack(each)


def main() -> None:
    parser = argparse.ArgumentParser(description="How pictures of both renderers differ.")
    parser.add_argument("--robot", default="lift_cube")
    parser.add_argument("--cameras", nargs="+", default=["wrist", "fixed"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--far", type=float, default=1.0)
    parser.add_argument(
        "--out", type=Path, help="a picture of the start and 12 steps later: OpenGL's above, Warp's below"
    )
    given = parser.parse_args()
    robot = RobotFactory(given.robot)
    factory = CameraFactory(robot, tuple(given.cameras), size=given.size, kind="rgbd", far=given.far)
    batch, rows = factory.make_batch(0, 1, 1), new_rows(factory.spec, 1)
    batch.bind(rows)
    batch.reset(0)
    batched = Batched(
        mujoco.MjModel.from_xml_path(robot.model.path),
        Drawn(tuple(given.cameras), given.size, "rgbd", given.far),
    )
    low, high = np.array(factory.spec.action.low), np.array(factory.spec.action.high)
    rng = np.random.default_rng(0)
    theirs, ours = [], []
    for _ in range(given.states):
        theirs.append(np.stack([rows.obs[name][0].copy() for name in factory.leaves]))
        ours.append(batched.draw(batch.physics(0)))
        for _ in range(4):
            rows.action[:] = rng.uniform(low, high, rows.action.shape)
            batch.step()
    batch.close()
    difference = np.abs(np.stack(ours).astype(int) - np.stack(theirs))
    for camera, name in enumerate(given.cameras):
        colours, depth = difference[:, camera, ..., :3], difference[:, camera, ..., 3]
        print(
            f"{name}, {given.size} px, {given.states} states: colours {colours.mean():.2f} of 255 on average, "
            f"{(colours > 12).any(-1).mean():.1%} of pixels by more than 12; depth {depth.mean():.2f}, "
            f"{(depth > 12).mean():.1%}"
        )
    if given.out:
        from PIL import Image

        shown = (0, min(3, given.states - 1))
        both = [
            np.concatenate([picture for state in shown for picture in side[state][..., :3]], 1)
            for side in (theirs, ours)
        ]
        Image.fromarray(np.concatenate(both, 0)).resize(
            (256 * len(shown) * len(given.cameras), 512), Image.Resampling.NEAREST
        ).save(given.out)


if __name__ == "__main__":
    main()
