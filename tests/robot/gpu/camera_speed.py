"""Measures pictures a second of robots stepped and drawn on a GPU, without a policy: one CUDA graph of all of it.

    python -m tests.robot.gpu.camera_speed --envs 1024 4096 --sizes 64 84 --seconds 2 --repeats 3

Each figure is the median of the repeats; random actions that change every 8 steps, one camera. `without` is the same
robots without pictures.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvFactory
from metta_fast.envs.robot.camera.factory import CameraFactory
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.runtime.cuda_graph import Graph

HORIZON = 8


def prepared(factory: RobotFactory | CameraFactory, envs: int) -> tuple[Callable[[], None], float]:
    """Returns what steps all environments HORIZON times, and the seconds until it could."""
    begun, device = time.perf_counter(), torch.device("cuda", 0)
    vec = factory.make_device_vector(envs, device, 0, envs)
    b = Buffers.allocate(
        vec.spec, num_agents=envs, horizon=HORIZON, bptt_horizon=HORIZON, state_shape=(0, 0), device=device
    )
    low, high = (torch.tensor(bound, device=device) for bound in (vec.spec.action.low, vec.spec.action.high))
    b.env_action = torch.zeros_like(b.action[0])
    action = b.env_action
    vec.attach(b)

    def rollout() -> None:
        for leaf in (*b.obs.values(), b.mask, b.reset):
            leaf[0].copy_(leaf[HORIZON])
        for t in range(HORIZON):
            vec.step_row(t)

    graph = Graph("rollout", rollout, enabled=True, say=print)

    def steps() -> None:
        action.copy_(low + (high - low) * torch.rand_like(action))
        graph()

    vec.async_reset(0)
    for _ in range(3):
        steps()
    torch.cuda.synchronize()
    return steps, time.perf_counter() - begun


def rate(steps: Callable[[], None], envs: int, seconds: float) -> float:
    """Returns steps of environments a second."""
    torch.cuda.synchronize()
    begun, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        for _ in range(4):
            steps()
        torch.cuda.synchronize()
        count += 4 * HORIZON * envs
    return count / passed


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures a second of robots on the GPU.")
    parser.add_argument("--robot", default="lift_cube")
    parser.add_argument("--camera", default="wrist")
    parser.add_argument("--envs", nargs="+", type=int, default=[1024, 4096])
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 84])
    parser.add_argument("--kind", default="rgb")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    robot = RobotFactory(given.robot, njmax=112, nconmax=24)
    for envs in given.envs:
        ways: dict[str, EnvFactory] = {"without": robot}
        for size in given.sizes:
            ways[f"{size} px"] = CameraFactory(robot, (given.camera,), size=size, kind=given.kind)
        for name, factory in ways.items():
            assert isinstance(factory, RobotFactory | CameraFactory)
            steps, before = prepared(factory, envs)
            rates = [rate(steps, envs, given.seconds) for _ in range(given.repeats)]
            print(
                f"{envs} robots, {name}: {statistics.median(rates):,.0f} steps/s ({min(rates):,.0f} to "
                f"{max(rates):,.0f}), {before:.1f} s before the first, "
                f"{torch.cuda.mem_get_info()[0] / 2**30:.1f} GiB free",
                flush=True,
            )


if __name__ == "__main__":
    main()
