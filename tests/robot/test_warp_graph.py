"""Robots' physics as part of the rollout's CUDA graph, beside the same rollout launched in parts; needs a GPU.

python -m pytest -m gpu tests/robot/test_warp_graph.py
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("mujoco")
pytest.importorskip("mujoco_warp")

from metta_fast.buffers.rollout import Buffers
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.warp.vector import WarpVector
from metta_fast.runtime.cuda_graph import Graph

HORIZON, ENVS = 4, 64


def rows(
    preset: str, task: str, *, captured: bool, rollouts: int
) -> tuple[list[dict[str, torch.Tensor]], Graph]:
    """Steps the same robots with the same actions; returns each rollout's rows."""
    device = torch.device("cuda", 0)
    vec = RobotFactory(task, preset=preset, max_steps=9).make_device_vector(ENVS, device, 0, ENVS)
    assert isinstance(vec, WarpVector)
    b = Buffers.allocate(
        vec.spec, num_agents=ENVS, horizon=HORIZON, bptt_horizon=HORIZON, state_shape=(0, 0), device=device
    )
    b.env_action = torch.empty_like(b.action[0])
    vec.attach(b)
    assert vec.capturable
    tape = (
        torch.rand((HORIZON, *b.env_action.shape), generator=torch.Generator().manual_seed(0)).to(device) * 2
        - 1
    )

    def rollout() -> None:
        for leaf in (*b.obs.values(), b.mask, b.reset):
            leaf[0].copy_(leaf[HORIZON])
        for t in range(HORIZON):
            b.env_action.copy_(tape[t])  # type: ignore[union-attr]
            vec.step_row(t)

    said: list[str] = []
    graph = Graph("rollout", rollout, enabled=captured, say=said.append)
    vec.async_reset(3)
    found = []
    for _ in range(rollouts):
        graph()
        torch.cuda.synchronize()
        found.append(
            {
                name: getattr(b, name).cpu().clone()
                for name in ("reward", "terminal", "truncation", "mask", "reset")
            }
            | {"obs": b.obs["obs"].cpu().clone()}
        )
    assert said == []
    return found, graph


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("task", "preset"), [("hopper", "fast"), ("hopper", "exact"), ("inverted_double_pendulum", "exact")]
)
def test_a_captured_rollout_is_that_of_launches(task: str, preset: str) -> None:
    """The first is launched, the second captured, later ones replayed. Episodes end and begin in them. A GPU adds in
    any order, so that contacts make rounding errors grow: single steps agree, and nearly all rows."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    graphed, graph = rows(preset, task, captured=True, rollouts=5)
    launched, _ = rows(preset, task, captured=False, rollouts=5)
    assert graph.captured
    for one, other in zip(graphed, launched):
        close = torch.isclose(one["obs"], other["obs"], rtol=1e-2, atol=1e-2).float().mean()
        assert close > 0.97
        for name in ("terminal", "truncation", "mask", "reset"):
            assert (one[name] == other[name]).float().mean() > 0.97
    assert sum(one["reset"].sum() for one in graphed) > 0
    assert any(one["reward"].ne(0).any() for one in graphed[1:])
