"""Equal advantages, and equal but for rounding, say nothing: torch, C and Triton normalise them to 0; small real
differences beside a large mean they normalise as float64 does.

Triton's part runs on a GPU, else in its interpreter (tests/interpreter.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.ppo.loss import normalized
from metta_fast.algorithms.ppo.loss_terms import EPSILON, LEAST_DEVIATION
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import Leaf
from metta_fast.policy import make_policy
from tests.interpreter import ON_GPU, elsewhere, kernels, run_interpreted
from tests.policy.specs import flat_spec
from tests.ppo.one_update import one_update
from tests.ppo.stand_in import make_config
from tests.ppo.test_gpu_tail import Case, distance

CPU = torch.device("cpu")
COUNTS = (7, 33, 1000, 4096, 32768)
VALUES = (0.1, 3.3, 123.456, -77.7, 1e-3, 1e6)


def advantages(kind: str, n: int, value: float, seed: int = 0) -> Tensor:
    """[n] float32. equal; rounding: half of them the next float32; real: a standard deviation of |value| / 1000."""
    x = np.full(n, value, np.float32)
    rng = np.random.default_rng(seed)
    if kind == "rounding":
        x = np.where(rng.random(n) < 0.5, x, np.nextafter(x, np.float32(np.inf)))
    elif kind == "real":
        x = x * (1 + 1e-3 * rng.standard_normal(n, np.float32))
    return torch.from_numpy(x)


def exact(advantage: Tensor, mask: Tensor) -> Tensor:
    """The definition, in float64."""
    x = advantage.double()
    centred = torch.where(mask, x - x[mask].mean(), 0.0)
    deviation = centred[mask].square().mean().sqrt()
    return centred / (torch.maximum(deviation, LEAST_DEVIATION * x[mask].mean().abs()) + EPSILON)


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("masked", [0.0, 0.3])
def test_torch(n: int, value: float, masked: float) -> None:
    mask = torch.rand(n, generator=torch.Generator().manual_seed(n)) >= masked
    assert not normalized(advantages("equal", n, value), mask).any()
    assert normalized(advantages("rounding", n, value), mask).abs().max() < 0.02
    real = advantages("real", n, value)
    found = normalized(real, mask)
    torch.testing.assert_close(found.double(), exact(real, mask), rtol=1e-3, atol=1e-3)
    assert float(found[mask].std(correction=0)) == pytest.approx(1.0, rel=2e-2 if abs(value) < 0.01 else 1e-3)


def test_one_row_and_none() -> None:
    assert normalized(torch.tensor([3.3]), torch.tensor([True])).tolist() == [0.0]
    assert normalized(torch.tensor([3.3]), torch.tensor([False])).tolist() == [0.0]


def updated(native: bool, advantage: Tensor, mask: Tensor) -> tuple[dict[str, float], list[Tensor]]:
    """The statistics and Adam's first moments (gradients · 0.1) of one minibatch of n rows, in C or by torch."""
    n = len(advantage)
    spec = flat_spec((3,), obs=Leaf((2,), "float32"))
    b = Buffers.allocate(spec, num_agents=n, horizon=1, bptt_horizon=1, state_shape=(0, 0), device=CPU)
    g = torch.Generator().manual_seed(1)
    for array in (b.obs["obs"], b.logprob, b.value, b.returns):
        array.normal_(generator=g)
    b.action.copy_(torch.randint(0, 3, b.action.shape, generator=g))
    b.advantage[0], b.mask[0] = advantage, mask
    whole = make_config(minibatch_size=n, vf_coef=0.0, entropy_coef=0.0, max_grad_norm=0.0)
    torch.manual_seed(0)
    policy: Any = make_policy(PolicyConfig(hidden_size=8), spec)
    sums, moments = one_update(native, policy, b, whole, spec)
    return dict(zip(SUMS, sums.tolist())), moments


@pytest.mark.parametrize("kind", ["equal", "rounding", "real"])
@pytest.mark.parametrize("n", [7, 1000, 32768])
@pytest.mark.parametrize("value", [3.3, -77.7])
def test_the_update_in_c(kind: str, n: int, value: float) -> None:
    mask = torch.rand(n, generator=torch.Generator().manual_seed(n)) >= 0.2
    given = advantages(kind, n, value)
    (one, ours), (other, theirs) = (updated(native, given, mask) for native in (True, False))
    assert one["policy"] == pytest.approx(other["policy"], rel=1e-3, abs=1e-5)
    size = torch.cat([m.flatten() for m in ours]).norm()
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-5)
    if kind == "equal":
        assert size < 1e-6
        assert abs(one["policy"]) < 1e-6
    elif kind == "real":
        assert size > 1e-4


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "-k", "test_triton")


@kernels
@pytest.mark.parametrize("kind", ["equal", "rounding", "real"])
@pytest.mark.parametrize(("agents", "value"), [(3, 0.1), (1000, -77.7), (16384 if ON_GPU else 2048, 0.1)])
def test_triton(kind: str, agents: int, value: float) -> None:
    """Of one part of 1024 rows, or of several."""
    case = Case(width=32, nvec=(3,), agents=agents, bptt=2, vf_coef=0.0, entropy_coef=0.0)
    case.buffers.advantage.copy_(
        advantages(kind, case.buffers.advantage.numel(), value).view_as(case.buffers.advantage)
    )
    got, grads = case.kernels()
    if kind == "equal":
        assert abs(float(got.stats[0])) < 1e-6
        assert all(float(g.abs().max()) < 1e-6 for g in grads)
        return
    want, expected = case.plain(torch.float64)
    if kind == "rounding":  # of which the mean's is as large
        assert abs(float(got.stats[0])) < 0.02
        return
    assert float(got.stats[0]) == pytest.approx(float(want.stats[0]), rel=2e-3, abs=1e-4)
    limit = 1e-2 if case.x.dtype == torch.float32 else 0.05
    assert all(distance(a, b) < limit for a, b in zip(grads, expected))
