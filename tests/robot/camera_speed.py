"""Measures samples a second of robots with pictures, stepped and drawn on the CPU, without a policy.

    python -m tests.robot.camera_speed --envs 1 4 8 16 64 --sizes 64 84 --seconds 3 --repeats 3

Each figure is the median of the repeats, which are made in turns; random actions, one camera.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np

from metta_fast import make_vector
from metta_fast.envs.robot.camera.factory import CameraFactory
from metta_fast.envs.robot.env import RobotFactory


def measure(factory: CameraFactory, envs: int, threads: int, seconds: float) -> float:
    """Returns samples (pictures with their rows) a second."""
    low, high = np.array(factory.spec.action.low), np.array(factory.spec.action.high)
    rng = np.random.default_rng(0)
    with make_vector(factory, envs, backend="threads", num_threads=threads) as vec:
        vec.async_reset(0)
        actions = rng.uniform(low, high, (64, envs, len(low))).astype(np.float32)
        count, begun, step = 0, 0.0, 0
        while True:
            block = vec.recv()
            if step == 5:
                begun = time.perf_counter()
            if step > 5:
                count += envs
                if (passed := time.perf_counter() - begun) > seconds:
                    break
            vec.send(block, actions[step % 64])
            step += 1
    return count / passed


def main() -> None:
    parser = argparse.ArgumentParser(description="Samples a second of robots with pictures on the CPU.")
    parser.add_argument("--robot", default="lift_cube")
    parser.add_argument("--camera", default="wrist")
    parser.add_argument("--envs", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 84])
    parser.add_argument("--kinds", nargs="+", default=["rgb"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    robot = RobotFactory(given.robot)
    found: dict[tuple[int, str, int], list[float]] = {}
    for _ in range(given.repeats):
        for size in given.sizes:
            for kind in given.kinds:
                factory = CameraFactory(robot, (given.camera,), size=size, kind=kind)
                for envs in given.envs:
                    rate = measure(factory, envs, given.threads, given.seconds)
                    found.setdefault((size, kind, envs), []).append(rate)
    for (size, kind, envs), rates in found.items():
        print(
            f"{size} px {kind}, {envs} environments, {given.threads} threads: {statistics.median(rates):.0f} samples/s "
            f"({min(rates):.0f} to {max(rates):.0f})"
        )


if __name__ == "__main__":
    main()
