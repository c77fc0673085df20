"""Films a trained lift of the cube from both cameras: the fixed one, and the wrist's picture beside it.

metta-fast train env=lift_cube_wrist env.device=cuda run.name=lift      # or env=lift_cube
python docs/film.py runs/lift docs/lift.gif --still docs/lift.png
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

import metta_fast
from metta_fast.envs.robot.camera.artist import Artist, Pictures
from metta_fast.envs.robot.camera.factory import beside
from metta_fast.envs.robot.env import RobotSim
from metta_fast.envs.robot.render import Renderer

HEIGHT, WIDTH, WRIST = 256, 344, 64
EVERY, STILL = 2, 22
"""Steps between two images, and the step of the still."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Films a trained lift of the cube from both cameras.")
    parser.add_argument("run", type=Path)
    parser.add_argument("film", type=Path)
    parser.add_argument("--still", type=Path)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    policy = metta_fast.load_policy(str(given.run), deterministic=True, device="cpu")
    sim = RobotSim("lift_cube", seed=given.seed)
    state, model = sim.reset(), sim.factory.model
    path, joints = model.path, 1 + model.joint_places  # physics begins with the time, then come the positions
    images = []
    with (
        Renderer(path, HEIGHT, WIDTH) as overview,
        Artist(Pictures(path, ("wrist",), WRIST), 1, len(sim.batch.physics(0))) as wrist,
    ):
        for _ in range(sim.factory.max_steps):
            wrist.states[0] = sim.batch.physics(0)
            wrist.draw()
            images.append(Image.fromarray(beside(overview.render(sim.batch.physics(0)), wrist.pictures[0])))
            seen = {"image": wrist.pictures[:, 0], "joints": np.float32(sim.batch.physics(0)[joints])[None]}
            obs = seen if "image" in policy.spec.obs else np.float32(state)[None]
            state, *_, info = sim.step(policy.act(obs)[0])
    frames = [image.quantize(64) for image in images[::EVERY]]
    step_ms = round(1000 * EVERY * sim.factory.step_s)
    frames[0].save(given.film, save_all=True, append_images=frames[1:], duration=step_ms, loop=0)
    if given.still:
        images[STILL].quantize(128).save(given.still, optimize=True)
    print(f"success {info['success']:.0f}, {len(frames)} images, {given.film.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
