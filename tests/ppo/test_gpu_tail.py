"""Compares the learner's kernels, from the first layer to the loss and back, with the network and autograd.

On a GPU they run there in bf16; else under Triton's interpreter in float32, in a process of its own, as it is chosen
at import:

    TRITON_INTERPRET=1 python -m pytest tests/ppo/test_gpu_tail.py
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from metta_fast.algorithms.ppo.loss import ppo_loss
from metta_fast.algorithms.ppo.loss_terms import STATS, Loss
from metta_fast.algorithms.ppo.minibatch import Gather
from metta_fast.algorithms.ppo.triton.applies import columns, not_fused_loss
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import PolicyConfig, TrainerConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.policy import make_policy
from metta_fast.policy.network import Network
from tests.interpreter import DEVICE, ON_GPU, RUNS, elsewhere, kernels, run_interpreted
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo
from tests.ppo.test_rollout import weights

DTYPE = torch.bfloat16 if ON_GPU else torch.float32

if RUNS:
    from metta_fast.algorithms.ppo.triton.loss_and_backward import Tail


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__)


class Case:
    """A policy of `width`, buffers of random rows, and a minibatch of some segments of them."""

    def __init__(
        self,
        width: int = 32,
        nvec: tuple[int, ...] = (9, 5),
        agents: int = 37,
        bptt: int = 3,
        masked: float = 0.2,
        dtype: torch.dtype | None = None,
        core: str = "none",
        **keys: Any,
    ) -> None:
        torch.manual_seed(0)
        self.config = TrainerConfig(
            **({"precision": "bf16", "vf_clip_coef": 0.2, "entropy_coef": 0.02} | keys)
        )
        self.clip = torch.tensor(self.config.clip_coef, device=DEVICE)
        spec = EnvSpec("x", 1, {"obs": Leaf((4,), "float32")}, ActionSpec("discrete", nvec))
        policy = make_policy(PolicyConfig(hidden_size=width, core=core), spec).to(DEVICE)
        assert isinstance(policy, Network)
        with torch.no_grad():
            for p in policy.parameters():
                p.add_(torch.randn_like(p) * 0.2)
        self.policy = policy
        self.buffers = b = Buffers.allocate(
            spec,
            num_agents=agents,
            horizon=2 * bptt,
            bptt_horizon=bptt,
            state_shape=(0, 0),
            device=DEVICE,
        )
        for array in (b.advantage, b.returns, b.value):
            array.normal_()
        b.advantage.mul_(3).add_(1)
        b.logprob.copy_(torch.randn_like(b.logprob) * 0.3 - sum(torch.tensor(float(n)).log() for n in nvec))
        b.mask.copy_(torch.rand(b.mask.shape, device=DEVICE) >= masked)
        for head, n in enumerate(nvec):
            b.action[:, :, head].random_(n)
        self.segments = torch.randperm(b.num_segments, device=DEVICE)[: max(1, b.num_segments * 2 // 3)]
        self.x = torch.randn(len(self.segments) * bptt, width, device=DEVICE).to(dtype or DTYPE)
        self.weight: Tensor | None = None

    def tail(self) -> Any:
        return Tail(self.policy, self.buffers, self.config, self.clip)

    def kernels(self) -> tuple[Loss, list[Tensor]]:
        tail = self.tail()
        x = self.x.clone().requires_grad_()
        batch = tail.gather(self.segments)
        assert torch.equal(batch.rows, Gather(self.buffers, DEVICE).rows(self.segments))
        return self.finished(tail(x, batch, self.buffers.value, self.weight), x)

    def plain(self, dtype: torch.dtype) -> tuple[Loss, list[Tensor]]:
        """By torch, layers in `dtype`, of 16 bits: as under autocast."""
        gather, config, policy = Gather(self.buffers, DEVICE), self.config, self.policy
        high = torch.float64 if dtype == torch.float64 else torch.float32
        batch = gather.minibatch(self.segments, gather.rows(self.segments), self.weight)
        batch = batch._replace(
            **{k: getattr(batch, k).to(high) for k in ("logprob", "value", "advantage", "returns")}
        )
        x = self.x.clone().to(dtype).requires_grad_()
        hidden, heads = x, policy.heads
        if policy.core is None:
            second: Any = policy.encoder.second
            hidden = F.relu(F.linear(F.relu(x), second.weight.to(dtype), second.bias.to(dtype)))
        out = F.linear(hidden.to(high), heads.weight.to(high), heads.bias.to(high))
        out = out.unflatten(0, (self.buffers.bptt_horizon, len(self.segments)))
        logp = [part.log_softmax(-1) for part in out[..., :-1].split(policy.head.nvec, -1)]
        logprob = sum(
            part.gather(-1, batch.action[..., i : i + 1].long()).squeeze(-1) for i, part in enumerate(logp)
        )
        entropy = -sum((part.exp() * part).sum(-1) for part in logp)
        return self.finished(ppo_loss(logprob, entropy, out[..., -1], batch, config, self.clip), x)

    def finished(self, result: Loss, x: Tensor) -> tuple[Loss, list[Tensor]]:
        encoder: Any = self.policy.encoder
        layers = [*self.policy.heads.parameters()]
        if self.policy.core is None:
            layers = [*encoder.second.parameters(), *layers]
        grads = torch.autograd.grad(result.loss / self.config.gradient_accumulation, [x, *layers])
        return result, list(grads)


def distance(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12))


def check(case: Case) -> None:
    """float32: as exact as float32 is. 16 bits: no further from float64 than autocast is, and some more."""
    got, grads = case.kernels()
    want, exact = case.plain(torch.float64)
    if case.x.dtype == torch.float32:
        torch.testing.assert_close(got.stats, want.stats.float(), rtol=2e-5, atol=2e-6)
        torch.testing.assert_close(got.loss, want.loss.float(), rtol=2e-5, atol=2e-6)
        for a, b in zip(grads, exact):
            assert a.dtype == torch.float32
            assert distance(a, b) < 2e-5
        return
    cast, others = case.plain(case.x.dtype)
    torch.testing.assert_close(got.stats, cast.stats, rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(got.loss, cast.loss, rtol=2e-3, atol=2e-4)
    for a, b, c in zip(grads, others, exact):
        assert a.dtype == b.dtype
        assert distance(a, c) < 1.5 * distance(b, c) + 2e-3


OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no value clip": {"vf_clip_coef": None},
    "not normalised": {"normalize_advantage": False},
    "accumulated": {"gradient_accumulation": 4},
    "no entropy": {"entropy_coef": 0.0, "vf_coef": 2.0, "clip_coef": 0.05},
    "one row": {"agents": 1, "bptt": 1, "masked": 0.0},
    "nothing masked": {"masked": 0.0},
    "everything masked": {"masked": 1.1},
    "one head": {"nvec": (4,)},
    "full heads": {"nvec": (16, 16)},
    "three heads": {"nvec": (3, 7, 2)},
    "many heads": {"nvec": (2, 1, 2, 1, 1)},
    "narrow": {"width": 16},
    "wide": {"width": 128, "agents": 70},
    "after a memory": {"core": "mingru"},
    "after a memory, wide": {"core": "mingru", "width": 128, "agents": 70, "nvec": (16, 16)},
    "after a memory, of 16 bits": {"core": "mingru", "width": 64, "dtype": torch.float16},
    "of 16 bits": {"width": 64, "dtype": torch.float16, "agents": 8, "bptt": 2},
}


@kernels
@pytest.mark.parametrize("name", OPTIONS)
def test_same_as_torch(name: str) -> None:
    check(Case(**OPTIONS[name]))


@kernels
def test_weights_multiply_the_advantages() -> None:
    case = Case()
    case.weight = torch.rand(len(case.segments), device=DEVICE) + 0.5
    check(case)


@kernels
def test_the_clip_is_read_by_each_launch() -> None:
    case, fresh = Case(), Case(clip_coef=0.03)
    before, _ = case.kernels()
    case.clip.fill_(0.03)
    after, grads = case.kernels()
    built, expected = fresh.kernels()
    assert torch.equal(after.stats, built.stats)
    assert after.stats[STATS.index("clip_fraction")] > before.stats[STATS.index("clip_fraction")]
    for a, b in zip(grads, expected):
        assert torch.equal(a, b)
    check(case)


@kernels
def test_several_tiles_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from metta_fast.algorithms.ppo.triton import loss_and_backward as gpu_tail

    monkeypatch.setattr(gpu_tail, "PROGRAMS", 3)
    monkeypatch.setattr(gpu_tail, "GATHERED", 64)
    check(Case(agents=150, width=64))
    check(Case(agents=150, width=64, core="mingru"))


@kernels
def test_masked_rows_are_not_read() -> None:
    case = Case()
    want, grads = case.kernels()
    masked = ~case.buffers.mask[:-1]
    for array in (case.buffers.advantage, case.buffers.returns, case.buffers.logprob):
        array[masked] = torch.nan
    case.buffers.value[:-1][masked] = torch.inf
    got, again = case.kernels()
    assert torch.equal(want.stats, got.stats)
    assert all(torch.equal(a, b) for a, b in zip(grads, again))


@kernels
@pytest.mark.parametrize("where", ["x", "advantage", "returns"])
def test_what_is_not_finite_is_seen(where: str) -> None:
    case = Case(masked=0.0)
    array = case.x if where == "x" else getattr(case.buffers, where)
    array.fill_(torch.nan) if where != "x" else array[3].fill_(torch.nan)
    result, grads = case.kernels()
    assert torch.isnan(result.loss)
    assert not torch.isfinite(grads[1]).all()


@kernels
@pytest.mark.parametrize(("core", "accumulated"), [("none", 1), ("none", 2), ("mingru", 1)])
def test_the_learner_learns_the_same(core: str, accumulated: int) -> None:
    """An update by it, from the rows of the buffers to the weights."""
    learnt = []
    for fused in (False, True):
        factory = tickers(4)
        torch.manual_seed(0)
        policy = make_policy(PolicyConfig(hidden_size=32, core=core), factory.spec)
        settings = {"gradient_accumulation": accumulated, "precision": "bf16" if ON_GPU else "fp32"}
        ppo = make_ppo(factory, policy=policy, learning_rate=1e-3, device=DEVICE.type, **settings)
        learner: Any = ppo.learner
        if fused:
            learner.gradients.use_tail(None)
            learner.gradients._gathers = True
        ppo.collect()
        ppo.update()
        ppo.rollout.vec.close()
        learnt.append((weights(ppo), learner.sums))
    (plain, sums), (same, same_sums) = learnt
    torch.testing.assert_close(same_sums, sums, rtol=2e-2 if ON_GPU else 1e-4, atol=1e-3 if ON_GPU else 1e-5)
    assert (same - plain).abs().mean() < (
        3e-4 if ON_GPU else 1e-6
    )  # Adam: up to 1e-3 a step for the smallest


def test_too_many_rows_are_left_to_torch() -> None:
    """A place among the numbers of a minibatch's layer has 31 bits."""
    policy = Case(width=128, agents=2, bptt=1).policy
    for rows, supported in ((2**24 - 1, True), (2**24, False)):
        why = not_fused_loss(policy, TrainerConfig(precision="bf16", minibatch_size=rows))
        assert (why is None) == supported
    assert "trainer.minibatch_size=16777216" in str(why)


def test_the_smallest_networks_are_left_to_torch() -> None:
    """Of 16 units and 16 columns, which Triton does not compile."""
    for width, nvec, supported in (
        (16, (2,), False),
        (16, (3, 4), False),
        (16, (9, 5), True),
        (32, (2,), True),
    ):
        why = not_fused_loss(Case(width=width, nvec=nvec).policy, TrainerConfig(precision="bf16"))
        assert (why is None) == supported, why


@kernels
def test_what_is_supported() -> None:
    case = Case()
    assert not_fused_loss(case.policy, case.config) is None
    for keys in ({"advantage": "vtrace"}, {"recompute": "minibatch"}, {"precision": "fp32"}):
        config = TrainerConfig(**({"precision": "bf16"} | keys))
        assert "trainer." in str(not_fused_loss(case.policy, config))
    assert (
        not_fused_loss(Case(width=48).policy, case.config)
        == "policy.hidden_size=48, not one of 16, 32, 64, 128"
    )
    assert "action heads" in str(not_fused_loss(Case(nvec=(40, 2)).policy, case.config))
    assert not_fused_loss(Case(core="mingru").policy, case.config) is None
    assert not_fused_loss(Case(core="lstm").policy, case.config) == "a recurrent policy (LSTMCore)"
    assert columns((9, 9)) == (2, 16)
    assert columns((4,)) == (1, 16)
    assert columns((16, 16)) == (2, 32)
    assert columns((1,) * 9) == (16, 2)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize(("width", "core"), [(64, "none"), (128, "none"), (128, "mingru")])
def test_a_whole_minibatch(width: int, core: str) -> None:
    """32768 rows; the same bits each time, and from a CUDA graph."""
    case = Case(width=width, core=core, agents=3072, bptt=16)
    assert len(case.x) == 65536
    case.segments, case.x = case.segments[:2048], case.x[:32768]
    check(case)
    first, grads = case.kernels()
    for _ in range(3):
        again, others = case.kernels()
        assert torch.equal(first.stats, again.stats)
        assert all(torch.equal(a, b) for a, b in zip(grads, others))
    tail, graph = case.tail(), torch.cuda.CUDAGraph()
    layers = tuple(x.detach() for layer in tail.layers for x in layer.parameters())
    with torch.cuda.graph(graph):
        captured = tail.run(case.x, layers, tail.gather(case.segments), case.buffers.value, None)
    graph.replay()
    assert torch.equal(first.stats, captured[1])
    assert all(torch.equal(a, b) for a, b in zip(grads, captured[2]))


@kernels
def test_gradients_are_taken_over_without_a_copy() -> None:
    case = Case(width=64)
    tail = case.tail()
    result = tail(case.x.clone().requires_grad_(), tail.gather(case.segments), case.buffers.value)
    kept = [x.data_ptr() for x in result.loss.grad_fn.gradients[1:]]
    result.loss.backward()
    encoder: Any = case.policy.encoder
    layers = [*encoder.second.parameters(), *case.policy.heads.parameters()]
    assert [p.grad.data_ptr() for p in layers] == kept
