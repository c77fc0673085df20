"""Measures how pictures of one scene differ between MuJoCo's OpenGL and MuJoCo Warp's renderer, on the CPU.

    python -m tests.robot.same_scene --robot lift_cube --cameras wrist fixed --size 64 --states 16 [--out scene.png]

The states are of an arm that random actions move. Prints for each camera the mean difference of a byte (0 … 255), and
the share of pixels where a channel differs by more than 12.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import mujoco
import mujoco_warp
import numpy as np
import warp

from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot.camera.factory import CameraFactory
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.warp.draw.context import Context, Drawn


def main() -> None:
    parser = argparse.ArgumentParser(description="How pictures of both renderers differ.")
    parser.add_argument("--robot", default="lift_cube")
    parser.add_argument("--cameras", nargs="+", default=["wrist", "fixed"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--far", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="a picture: OpenGL's above, Warp's below")
    given = parser.parse_args()
    robot = RobotFactory(given.robot)
    factory = CameraFactory(robot, tuple(given.cameras), size=given.size, kind="rgbd", far=given.far)
    batch, rows = factory.make_batch(0, 1, 1), new_rows(factory.spec, 1)
    batch.bind(rows)
    batch.reset(0)
    model = mujoco.MjModel.from_xml_path(robot.model.path)
    data = mujoco.MjData(model)
    low, high = np.array(factory.spec.action.low), np.array(factory.spec.action.high)
    rng = np.random.default_rng(0)
    warp.config.log_level = warp.LOG_ERROR
    warp.init()
    theirs, ours = [], []
    with warp.ScopedDevice("cpu"):
        context = Context(model, Drawn(tuple(given.cameras), given.size, "rgbd", given.far), 1)
        out = warp.zeros((1, given.size**2, 4), dtype=warp.uint8)
        there = mujoco_warp.put_model(model)
        for _ in range(given.states):
            for _ in range(4):
                rows.action[:] = rng.uniform(low, high, rows.action.shape)
                batch.step()
            mujoco.mj_setState(model, data, batch.physics(0), mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(model, data)
            context.draw(there, mujoco_warp.put_data(model, data, nworld=1, nconmax=64, njmax=256))
            theirs.append(np.stack([rows.obs[name][0].copy() for name in factory.leaves]))
            each = []
            for camera in range(len(given.cameras)):
                context.write(camera, out)
                each.append(out.numpy()[0].reshape(given.size, given.size, 4).copy())
            ours.append(np.stack(each))
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

        both = [np.concatenate(list(side[-1][..., :3]), 1) for side in (theirs, ours)]
        Image.fromarray(np.concatenate(both, 0)).resize((1024, 1024), Image.Resampling.NEAREST).save(
            given.out
        )


if __name__ == "__main__":
    main()
