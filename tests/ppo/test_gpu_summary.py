"""Compares the Triton kernels of summary and advantage with torch's operations and the plain reference.

On a GPU they run there; else under Triton's interpreter, in a process of its own, as it is chosen at import:

    TRITON_INTERPRET=1 python -m pytest tests/ppo/test_gpu_summary.py
"""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from metta_fast.algorithms.ppo.advantage import Inputs
from metta_fast.algorithms.ppo.advantage.reference import advantage_reference
from metta_fast.algorithms.ppo.advantage.value_sums import VALUE_SUMS, add_up
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.rollout.episode_stats import EpisodeStats
from metta_fast.rollout.reward_scale import RewardScale
from metta_fast.rollout.summary import Summary
from tests.interpreter import DEVICE, ON_GPU, elsewhere, gpu, kernels, run_interpreted
from tests.replay import Replayed

GAMMA = 0.97

large = pytest.param(3000, 70, 5, marks=gpu)  # 94 blocks; over 8192 agents a block has more than one warp
larger = pytest.param(20_000, 32, 3, marks=gpu)
whole = pytest.param(8192, 32, 12, marks=gpu)


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__)


def make_buffers(agents: int, horizon: int, stats: int, *, box: bool = False) -> tuple[EnvSpec, Buffers]:
    leaf = Leaf((2,), "float32" if box else "uint8")
    action = (
        ActionSpec("box", (2,), low=(-1.0,) * 2, high=(1.0,) * 2) if box else ActionSpec("discrete", (3,))
    )
    spec = EnvSpec("x", 1, {"obs": leaf}, action, stats=tuple(f"stat_{i}" for i in range(stats)))
    buffers = Buffers.allocate(
        spec, num_agents=agents, horizon=horizon, bptt_horizon=1, state_shape=(0, 0), device=DEVICE
    )
    return spec, buffers


def fill(b: Buffers, random: np.random.Generator, ends: float = 0.1) -> None:
    def put(array: torch.Tensor, values: np.ndarray) -> None:
        array.copy_(torch.from_numpy(values))

    for array in (b.reward, b.value, b.logprob, b.stats):
        put(array, random.normal(0.3, 1.0, tuple(array.shape)))
    put(b.ratio, random.exponential(size=tuple(b.ratio.shape)))
    put(b.mask, random.random(tuple(b.mask.shape)) < 0.85)
    for array in (b.terminal, b.truncation):
        put(array, random.random(tuple(array.shape)) < ends)


def by_kernels(spec: EnvSpec, b: Buffers, normalize: bool, staggered: bool) -> Summary:
    """A summary that uses the kernels on whatever device."""
    from metta_fast.rollout.triton_summary import GpuSummary

    summary = Summary(spec, b, *fresh(spec, b.num_agents, normalize, staggered))
    summary._kernels = GpuSummary(spec, b, summary.episodes, summary.reward_scale, summary.figures)
    return summary


def by_torch(spec: EnvSpec, b: Buffers, normalize: bool, staggered: bool) -> Summary:
    summary = Summary(spec, b, *fresh(spec, b.num_agents, normalize, staggered))
    summary._kernels = None
    return summary


def fresh(
    spec: EnvSpec, agents: int, normalize: bool, staggered: bool
) -> tuple[EpisodeStats, RewardScale | None]:
    episodes = EpisodeStats(spec, agents, DEVICE)
    episodes.restart(staggered=staggered)
    return episodes, RewardScale(agents, GAMMA, DEVICE) if normalize else None


@kernels
@pytest.mark.parametrize(
    ("agents", "horizon", "stats"), [(1, 1, 1), (3, 33, 0), (40, 5, 2), large, larger, whole]
)
@pytest.mark.parametrize(("normalize", "staggered"), [(True, True), (True, False), (False, True)])
def test_same_as_torch(agents: int, horizon: int, stats: int, normalize: bool, staggered: bool) -> None:
    spec, b = make_buffers(agents, horizon, stats)
    fused = by_kernels(spec, b, normalize, staggered)
    plain_buffers = copy.deepcopy(b)
    plain = by_torch(spec, plain_buffers, normalize, staggered)
    random = np.random.default_rng(agents)
    for _ in range(2):
        fill(b, random)
        plain_buffers.__dict__.update(copy.deepcopy(b).__dict__)
        fused.run()
        plain.run()
        torch.testing.assert_close(fused.figures, plain.figures, rtol=1e-4, atol=1e-4)
        assert fused.figures[0] == plain.figures[0]
        assert fused.figures[1] == plain.figures[1]
        torch.testing.assert_close(b.reward, plain_buffers.reward)
        for name, value in fused.episodes.state_dict().items():
            torch.testing.assert_close(value, plain.episodes.state_dict()[name])
        if fused.reward_scale and plain.reward_scale:
            assert torch.equal(fused.reward_scale.discounted, plain.reward_scale.discounted)
            torch.testing.assert_close(fused.reward_scale.moments, plain.reward_scale.moments)
            torch.testing.assert_close(fused.reward_scale.factor, plain.reward_scale.factor)
        steps, means = fused.read(fused.figures.tolist(), 0)
        assert steps == int(b.mask[:horizon].sum())
        assert means.keys() == (plain.read(plain.figures.tolist(), 0)[1]).keys()


@kernels
def test_a_large_mean_costs_no_variance() -> None:
    """Returns of 1e4 that hardly differ: the second pass over them that torch makes is not needed."""
    spec, b = make_buffers(8, 16, 0)
    fused, plain_buffers = by_kernels(spec, b, True, False), copy.deepcopy(b)
    plain = by_torch(spec, plain_buffers, True, False)
    random = np.random.default_rng(1)
    for _ in range(2):
        fill(b, random, ends=1.0)
        b.reward.mul_(0.01).add_(1e4)
        plain_buffers.__dict__.update(copy.deepcopy(b).__dict__)
        fused.run()
        plain.run()
        torch.testing.assert_close(b.reward, plain_buffers.reward, rtol=1e-4, atol=0)


@kernels
@pytest.mark.parametrize("kind", ["no reward", "one reward", "constant rewards"])
def test_the_scale_before_there_is_variance(kind: str) -> None:
    spec, b = make_buffers(8, 16, 0)
    fused, plain_buffers = by_kernels(spec, b, True, False), copy.deepcopy(b)
    plain = by_torch(spec, plain_buffers, True, False)
    for _ in range(2):
        fill(b, np.random.default_rng(1), ends=1.0)
        b.reward.fill_(3.0 if kind == "constant rewards" else 0.0)
        b.reward[2, 5], b.mask[2, 5] = (0.0 if kind == "no reward" else 3.0), True
        plain_buffers.__dict__.update(copy.deepcopy(b).__dict__)
        fused.run()
        plain.run()
        torch.testing.assert_close(b.reward, plain_buffers.reward, rtol=1e-4, atol=0)
        assert b.reward.abs().max() < 5.5


@kernels
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["reward", "log-probability", "value", "observation", "action"])
def test_what_is_not_finite_is_named_in_place(name: str, value: float) -> None:
    """In row T of the values too; the rewards are left as they were. In a masked row, which nothing is learnt from,
    only an observation matters: the rollout has put 0 where it is not used."""
    spec, b = make_buffers(5, 4, 1, box=True)
    fill(b, np.random.default_rng(2))
    b.mask[:, 3], b.terminal[:, 3], b.mask[:, 1] = True, False, False
    summary = by_kernels(spec, b, True, False)
    array = {
        "reward": b.reward,
        "log-probability": b.logprob,
        "value": b.value,
        "observation": b.obs["obs"],
        "action": b.action,
    }[name]
    row = 4 if name == "value" else 2
    if name != "observation":
        array[row, 1] = value
        summary.run()
        assert float(summary.bad()) == 0
    array[row, 3] = value
    summary.run()
    assert float(summary.bad()) == 1
    with pytest.raises(
        NonFiniteError, match=rf"^{name} is {value} in environment 3 .*row {row} of .*epoch 7"
    ):
        summary.read(summary.figures.tolist(), 7)


@kernels
@pytest.mark.parametrize(
    ("agents", "horizon"),
    [
        (1, 1),
        (40, 5),
        (3, 33),
        pytest.param(3000, 70, marks=gpu),
        pytest.param(8192, 32, marks=gpu),
    ],
)
@pytest.mark.parametrize("vtrace", [True, False])
@pytest.mark.parametrize("has_final_obs", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_advantage_equals_the_reference(
    agents: int, horizon: int, vtrace: bool, has_final_obs: bool, given: bool
) -> None:
    from metta_fast.algorithms.ppo.advantage.on_gpu import advantage_on_gpu

    _, b = make_buffers(agents, horizon, 0)
    fill(b, np.random.default_rng(horizon), ends=0.05)
    b.advantage.fill_(math.nan)
    b.returns.fill_(math.nan)
    inputs = Inputs(
        b.value, b.reward, b.terminal, b.truncation, b.mask, b.ratio if vtrace else None,
        torch.randn_like(b.reward) if given else None, GAMMA, 0.95, 1.5, 0.8, has_final_obs,
    )  # fmt: skip
    sums, plain = torch.zeros(2, len(VALUE_SUMS), dtype=torch.float64, device=DEVICE)
    advantage_on_gpu(inputs, b.advantage, b.returns, sums)
    add_up(b, plain)
    torch.testing.assert_close(sums, plain, rtol=1e-5, atol=1e-2)
    few = slice(0, 200)  # the reference is slow
    some = inputs.with_arrays(lambda array: array[:, few].cpu().numpy())
    for got, want in zip((b.advantage, b.returns), advantage_reference(some)):
        np.testing.assert_allclose(got[:, few].cpu().numpy(), want, rtol=1e-5, atol=2e-5)
    assert torch.isfinite(b.advantage).all()


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_a_graph_replays_them() -> None:
    """Same bits as launch by launch, over rollouts that change underneath."""
    from metta_fast.algorithms.ppo.advantage import compute_advantage
    from metta_fast.config.keys import TrainerConfig

    spec, b = make_buffers(500, 32, 4)
    other_buffers = copy.deepcopy(b)
    captured, eager = by_kernels(spec, b, True, True), by_kernels(spec, other_buffers, True, True)
    config, random = TrainerConfig(), np.random.default_rng(3)

    def work(summary: Summary) -> None:
        summary.run()
        compute_advantage(summary.buffers, config)

    replayed = Replayed(lambda: work(captured))
    for _ in range(4):
        fill(b, random)
        for name in ("reward", "value", "logprob", "stats", "mask", "terminal", "truncation"):
            getattr(other_buffers, name).copy_(getattr(b, name))
        work(eager)
        replayed()
        assert torch.equal(captured.figures, eager.figures)
        for name in ("reward", "advantage", "returns"):
            assert torch.equal(getattr(b, name), getattr(other_buffers, name))
