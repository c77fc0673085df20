"""Compares the fused optimizer step with torch's clipping and Adam.

On a GPU its kernels run there; else under Triton's interpreter, in a process of its own, as it is chosen at import:

    TRITON_INTERPRET=1 python -m pytest tests/ppo/test_gpu_step.py
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.config.keys import TrainerConfig
from tests.interpreter import DEVICE, ON_GPU, elsewhere, gpu, kernels, run_interpreted
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo
from tests.replay import Replayed

SHAPES = ((33, 70), (5,), (), (1024,), (3, 1024))
MANY = ((3,),) * 34
"""More tensors than one launch takes."""
RATE = 1e-2

large = pytest.param(
    ((2968, 128), (128,), (1000, 1024), (7,)), 0.5, marks=gpu
)  # more chunks than partial sums


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__)


class Case:
    """The same weights twice: `fused` stepped by the kernels, `plain` by torch."""

    def __init__(
        self, shapes: tuple[tuple[int, ...], ...] = SHAPES, norm: float = 0.5, target_kl: float | None = None
    ) -> None:
        from metta_fast.algorithms.ppo.triton.optimizer_step import FusedStep, fits

        torch.manual_seed(0)
        self.plain = [nn.Parameter(torch.randn(shape, device=DEVICE)) for shape in shapes]
        self.fused = [nn.Parameter(p.detach().clone()) for p in self.plain]
        assert fits(self.fused)
        self.norm = norm
        self.rate = torch.tensor(RATE, device=DEVICE)
        self.plain_adam, self.adam = self.make_adam(self.plain), self.make_adam(self.fused)
        self.sums, self.stop = torch.zeros(len(SUMS), device=DEVICE), torch.zeros((), device=DEVICE)
        self.stats = torch.arange(1.0, len(STATS) + 1, device=DEVICE)
        self.step = FusedStep(self.fused, self.adam, self.sums, self.stop, norm, target_kl)

    def make_adam(self, parameters: list[nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(
            parameters, lr=self.rate, eps=TrainerConfig().adam_epsilon, fused=True, capturable=ON_GPU
        )

    def gradients(self, scale: float = 1.0, without: tuple[int, ...] = ()) -> None:
        for i, (p, q) in enumerate(zip(self.fused, self.plain)):
            p.grad = None if i in without else scale * torch.randn_like(p)
            q.grad = None if p.grad is None else p.grad.clone()

    def both(self) -> Tensor:
        """Step both; returns torch's norm."""
        self.step.step(self.stats)
        norm = nn.utils.get_total_norm([q.grad for q in self.plain if q.grad is not None])
        if self.norm > 0:
            nn.utils.clip_grads_with_norm_(self.plain, self.norm, norm)
        self.plain_adam.step()
        return norm

    def snapshot(self) -> list[Tensor]:
        """Weights and optimizer state of `fused`."""
        held = list(self.fused) + [t for p in self.fused for t in self.adam.state[p].values()]
        return [t.detach().clone() for t in held]

    def check(self) -> None:
        for p, q in zip(self.fused, self.plain):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)
            if q in self.plain_adam.state:
                for name, value in self.plain_adam.state[q].items():
                    torch.testing.assert_close(self.adam.state[p][name], value, rtol=2e-4, atol=1e-7)


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b))


@kernels
@pytest.mark.parametrize(
    ("shapes", "norm"), [(SHAPES, 0.5), (SHAPES, 0.0), (SHAPES, 1e6), (MANY, 0.5), large]
)
def test_same_as_torch(shapes: tuple[tuple[int, ...], ...], norm: float) -> None:
    """Also with gradients that are missing, at first or now and then; with more tensors than one launch takes."""
    case, total, steps = Case(shapes, norm), 0.0, 12 if ON_GPU else 6
    for i in range(steps):
        case.rate.fill_(RATE * (1 - i / 20))
        case.gradients(10.0 ** (i % 3 - 1), without=((0,), (), (1, 2))[i % 3])
        total += float(case.both())
    case.check()
    expected = [steps * n for n in case.stats.tolist()] + [total, steps, steps]
    torch.testing.assert_close(case.sums, torch.tensor(expected, device=DEVICE))
    assert float(case.stop) == 0


@kernels
def test_same_bits_again() -> None:
    one, two = Case(), Case()
    for case in (one, two):
        torch.manual_seed(1)
        for _ in range(3):
            case.gradients()
            case.step.step(case.stats)
    assert same(one.snapshot(), two.snapshot())
    assert torch.equal(one.sums, two.sums)


@kernels
def test_nothing_changes_once_stopped() -> None:
    case = Case()
    case.gradients()
    case.step.step(case.stats)
    before, sums = case.snapshot(), case.sums.clone()
    case.stop.fill_(1)
    case.step.step(case.stats)
    case.step.count(case.stats)
    case.fused[0].grad.fill_(math.nan)  # type: ignore[union-attr]
    case.step.step(case.stats)
    assert same(before, case.snapshot())
    assert torch.equal(sums, case.sums)
    case.stop.zero_()
    case.gradients()
    case.step.step(case.stats)
    assert not same(before, case.snapshot())


@kernels
@pytest.mark.parametrize(
    ("value", "norm", "shapes"),
    [
        (math.nan, 0.5, SHAPES),
        (math.nan, 0.0, MANY),
        (math.inf, 0.0, SHAPES),
        (-math.inf, 0.5, SHAPES),
        (1e30, 0.5, SHAPES),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_norm_that_is_not_finite_stops(
    value: float, norm: float, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """Weights and moments are those before it, and the sum of norms shows it. 1e30: its square is too large."""
    case = Case(shapes, norm)
    case.gradients()
    case.step.step(case.stats)
    before = case.snapshot()
    case.gradients()
    case.fused[-1].grad.view(-1)[-1] = value  # type: ignore[union-attr]
    case.step.step(case.stats)
    assert same(before, case.snapshot())
    assert float(case.stop) == 1
    sums = dict(zip(SUMS, case.sums.tolist()))
    assert not math.isfinite(sums["gradient_norm"])
    assert (sums["minibatches"], sums["optimizer_steps"]) == (2, 2)


@kernels
def test_target_kl_stops_before_the_step() -> None:
    """The minibatch that passes it is counted, and no later one."""
    case = Case(target_kl=0.5)
    kl = STATS.index("kl")
    for value in (0.1, 0.6, 0.1):
        case.gradients()
        case.stats[kl] = value
        case.step.step(case.stats)
        if value == 0.1 and not float(case.stop):
            before = case.snapshot()
    sums = dict(zip(SUMS, case.sums.tolist()))
    assert same(before, case.snapshot())
    assert (sums["minibatches"], sums["optimizer_steps"]) == (2, 1)
    assert sums["kl"] == pytest.approx(0.7)


@kernels
def test_a_minibatch_without_a_step_is_counted() -> None:
    case = Case(target_kl=0.5)
    before = case.snapshot()
    case.step.count(case.stats)
    assert same(before, case.snapshot())
    assert float(case.stop) == 0
    assert case.sums.tolist() == [*case.stats.tolist(), 0, 1, 0]


@kernels
def test_torch_goes_on_from_its_state_and_the_other_way_round() -> None:
    case = Case()
    for _ in range(3):
        case.gradients(without=(2,))
        case.both()
    ours, theirs = copy.deepcopy(case.adam.state_dict()), copy.deepcopy(case.plain_adam.state_dict())
    case.plain_adam.load_state_dict(ours)
    case.adam.load_state_dict(theirs)  # has no state of a parameter that had no gradient
    case.step.adopt()
    for adam in (case.adam, case.plain_adam):
        adam.param_groups[0]["lr"] = case.rate
    for _ in range(3):
        case.gradients()
        case.both()
    case.check()
    assert float(case.adam.state[case.fused[0]]["step"]) == 6
    assert float(case.adam.state[case.fused[2]]["step"]) == 3
    for value in case.adam.state[case.fused[0]].values():
        assert value.untyped_storage().data_ptr() in {
            t.untyped_storage().data_ptr() for t in (case.step._steps, case.step._moments)
        }


def fuse(ppo: PPO) -> PPO:
    """Let a learner on the CPU use the kernels."""
    from metta_fast.algorithms.ppo.triton.optimizer_step import FusedStep

    step, c = ppo.learner.step, ppo.config.trainer
    step.rate = step.optimizer.param_groups[0]["lr"] = torch.tensor(c.learning_rate)
    step.fused = FusedStep(
        step.parameters, step.optimizer, step.sums, step.stop, c.max_grad_norm, c.target_kl
    )
    return ppo


@kernels
@pytest.mark.skipif(ON_GPU, reason="test_gpu_loop.py does it there")
@pytest.mark.parametrize(
    "trainer",
    [
        {},
        {"gradient_accumulation": 2, "minibatches": 4},
        {"target_kl": 1e-3, "update_epochs": 4, "learning_rate": 0.05},
        {"max_grad_norm": 0.0},
    ],
)
def test_the_learner_learns_the_same(trainer: dict[str, Any]) -> None:
    """And goes on from the other's state."""
    one, two = fuse(make_ppo(tickers(4), **trainer)), make_ppo(tickers(4), **trainer)
    for epoch in range(3):
        for ppo in (one, two):
            ppo.collect()
            ppo.update()
        torch.testing.assert_close(one.learner.sums, two.learner.sums, rtol=1e-3, atol=1e-5)
        for p, q in zip(one.policy.parameters(), two.policy.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
        if epoch == 1:
            ours, theirs = one.learner.state_dict(), two.learner.state_dict()
            one.learner.load_state_dict(theirs)
            two.learner.load_state_dict(ours)
            two.learner.step.optimizer.param_groups[0]["lr"] = two.learner.step.rate
    for ppo in (one, two):
        ppo.rollout.vec.close()


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_a_graph_replays_it() -> None:
    """Same bits as launch by launch, over gradients that change underneath; a captured step can be stopped."""
    captured, eager = Case(target_kl=10.0), Case(target_kl=10.0)
    source = [torch.zeros_like(p) for p in captured.fused]

    def work(case: Case) -> None:
        for i in range(3):
            for p, value in zip(case.fused, source):
                p.grad = value * (i + 1)
            case.step.step(case.stats)
            case.adam.zero_grad(set_to_none=True)

    replayed = Replayed(lambda: work(captured))
    for epoch in range(6):
        for value in source:
            value.normal_()
        if epoch == 4:
            source[1][0] = math.nan
        work(eager)
        replayed()
        assert same(captured.snapshot(), eager.snapshot())
        assert torch.equal(captured.sums.nan_to_num(-1), eager.sums.nan_to_num(-1))
        assert float(captured.stop) == float(eager.stop) == (epoch >= 4)
    assert float(captured.adam.state[captured.fused[0]]["step"]) == 12


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize(
    "trainer",
    [{}, {"gradient_accumulation": 2}, {"target_kl": 1e-3, "learning_rate": 0.05}, {"core": "lstm"}],
)
def test_the_learner_uses_it_on_the_card(trainer: dict[str, Any]) -> None:
    """In its graph, with the same outcome as torch's operations."""
    from tests.ppo.test_gpu_loop import apart, epoch, gpu_ppo

    fused, plain = gpu_ppo(update_epochs=2, **trainer), gpu_ppo(update_epochs=2, **trainer)
    assert fused.learner.step.fused is not None
    plain.learner.step.fused = None
    for _ in range(3):
        epoch(fused)
        epoch(plain)
        assert apart(fused, plain) < 1e-3
        torch.testing.assert_close(fused.learner.sums, plain.learner.sums, rtol=1e-2, atol=1e-3)
    assert fused.learner._run.captured
