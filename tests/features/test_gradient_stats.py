"""Compares gradient statistics with autograd; a run is the same with and without them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.grid.env import GridFactory
from metta_fast.features import gradient_stats
from metta_fast.features.every import every
from metta_fast.policy import make_policy
from tests.ppo.envs import counted, tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_device_rollout import device_ppo
from tests.ppo.test_rollout import weights


class Witness:
    """Keeps gradients, and weights before and after, of every step."""

    def __init__(self) -> None:
        self.steps: list[tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]] = []

    def due(self, epoch: int) -> bool:
        return True

    def begin(self, context: Context) -> None:
        self.policy = context.policy
        self.steps.clear()

    def _named(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.policy.named_parameters()}

    def before_step(self) -> None:
        self.before = self._named()
        self.gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for name, p in self.policy.named_parameters()
        }

    def after_step(self, taken: Tensor) -> None:
        assert bool(taken)
        self.steps.append((self.gradients, self.before, self._named()))


def stats(interval: int = 1, max_grad_norm: float = 0.5) -> Hooks:
    hooks = Hooks()
    gradient_stats.add(hooks, interval_epochs=interval, min_s=0.0, max_grad_norm=max_grad_norm)
    return hooks


def flat(values: dict[str, Tensor], layer: str) -> Tensor:
    return torch.cat([x.flatten() for name, x in values.items() if name.startswith(layer + ".")])


@pytest.mark.parametrize(
    "keys", [{}, {"gradient_accumulation": 2}, {"max_grad_norm": 1e-3}, {"max_grad_norm": 0.0}]
)
def test_figures_are_those_of_the_gradients(keys: dict[str, Any]) -> None:
    hooks, witness = stats(max_grad_norm=keys.get("max_grad_norm", 0.5)), Witness()
    hooks.on_gradients.append(witness)
    ppo = run(make_ppo(tickers(4), minibatches=4, hooks=hooks, update_epochs=2, **keys), 2)
    row, steps = ppo.metrics(), witness.steps
    assert len(steps) == 8 // keys.get("gradient_accumulation", 1)
    norms = torch.stack(
        [torch.cat([g.flatten() for g in gradients.values()]).norm() for gradients, _, _ in steps]
    )
    assert row["gradient/norm"] == pytest.approx(float(norms.mean()), rel=1e-4)
    limit = keys.get("max_grad_norm", 0.5) or torch.inf
    assert row["gradient/clipped"] == pytest.approx(float((norms > limit).float().mean()))
    layers = {name.rpartition(".")[0] for name, _ in ppo.policy.named_parameters()}
    assert {
        name.split("/")[1] for name in row if name.count("/") == 2 and name.startswith("gradient/")
    } == layers
    for layer in layers:
        expected: dict[str, list[Tensor]] = {"norm": [], "mean": [], "std": [], "update_ratio": []}
        for gradients, before, after in steps:
            g, old, new = flat(gradients, layer), flat(before, layer), flat(after, layer)
            expected["norm"].append(g.norm())
            expected["mean"].append(g.mean())
            expected["std"].append(g.std(correction=0))
            expected["update_ratio"].append((new - old).norm() / old.norm())
        for figure, values in expected.items():
            mean = float(torch.stack(values).mean())
            assert row[f"gradient/{layer}/{figure}"] == pytest.approx(mean, rel=1e-3, abs=1e-7), (
                layer,
                figure,
            )


def test_a_step_that_is_not_taken_does_not_count() -> None:
    hooks = stats()
    ppo = make_ppo(tickers(2), hooks=hooks)
    ppo.rollout.vec.close()
    hook = hooks.on_gradients[0]
    assert isinstance(hook, gradient_stats.GradientStats)
    context = ppo._context()
    hook.begin(context)
    for p in ppo.policy.parameters():
        p.grad = torch.full_like(p, torch.inf)
    hook.before_step()
    hook.after_step(torch.tensor(True))
    assert hook(context) == {}
    for p in ppo.policy.parameters():
        p.grad = torch.ones_like(p)
    hook.before_step()
    hook.after_step(torch.tensor(False))
    assert hook(context) == {}
    hook.before_step()
    hook.after_step(torch.tensor(True))
    assert hook(context)["gradient/encoder/mean"] == 1.0


@pytest.mark.parametrize("lstm", [False, True])
def test_the_training_is_the_same_with_and_without(lstm: bool) -> None:
    bare = weights(run(make_ppo(tickers(4), lstm=lstm), 4))
    assert torch.equal(bare, weights(run(make_ppo(tickers(4), lstm=lstm, hooks=stats()), 4)))


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("keys", [{}, {"target_kl": 1e-4, "learning_rate": 0.02}, {"schedule": "adaptive"}])
def test_the_update_in_c_is_the_same_with_and_without(keys: dict[str, Any], grid: bool) -> None:
    """Its steps are C's, bit for bit; the gradients looked at are torch's."""
    settings = {"update_epochs": 2, **keys}

    def trained(hooks: Hooks | None) -> Any:
        grids = GridFactory(num_agents=3, observation="compact")
        factory: Any = counted(grids, 2) if grid else tickers(6, box=True)
        torch.manual_seed(0)
        config = PolicyConfig(hidden_size=24, shared=grid, activation="relu" if grid else "tanh")
        policy = make_policy(config, factory.spec)
        ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=policy, hooks=hooks, **settings)
        assert ppo.learner._cpu_update is not None
        return run(ppo, 3)

    bare, watched = trained(None), trained(stats())
    assert torch.equal(weights(bare), weights(watched))
    assert torch.equal(bare.learner.sums, watched.learner.sums)
    steps = bare.learner.sums[SUMS.index("optimizer_steps")]
    assert 0 < steps < 6 if "target_kl" in keys else steps == 6
    norm = bare.learner.sums[SUMS.index("gradient_norm")] / steps
    assert watched.metrics()["gradient/norm"] == pytest.approx(float(norm), rel=1e-3)


def test_only_its_own_epochs_are_watched_and_go_not_ahead() -> None:
    bare, watched = device_ppo(tickers(4), ahead=True), device_ppo(tickers(4), ahead=True, hooks=stats(3))
    ahead, figures = [], []
    for _ in range(7):
        for ppo in (bare, watched):
            ppo.collect()
            ppo.update()
        ahead.append(watched._ahead)  # type: ignore[attr-defined]
        figures.append("gradient/norm" in watched.metrics())
        assert torch.equal(weights(bare), weights(watched))
    assert figures == [False, False, True, False, False, True, False]
    assert ahead == [not figure for figure in figures]
    for ppo in (bare, watched):
        ppo.vec.close()


def test_due_counts_epochs_of_the_run_and_seconds() -> None:
    third = every(3)
    assert [third(epoch) for epoch in (3, 4, 5, 5, 6, 8)] == [False, False, True, True, False, True]
    rare = every(2, min_s=1000.0)
    assert [rare(epoch) for epoch in (1, 1, 3, 5)] == [True, True, False, False]
