"""Tests that trainer.target_kl ends an update at the first minibatch above it, and that nothing of it remains."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.c.mlp_update import MLPUpdate
from metta_fast.algorithms.ppo.gradients import Gradients
from metta_fast.algorithms.ppo.step import SUMS, Step
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from metta_fast.runtime.fast_paths import FastPaths
from tests.ppo.test_mlp_update import CPU, filled, make_config, trained

SEGMENTS, PARTS = 12, 6
KL, MINIBATCHES, STEPS = (SUMS.index(name) for name in ("kl", "minibatches", "optimizer_steps"))


def update(native: bool, target_kl: float | None, *, singly: bool = False) -> list[torch.Tensor]:
    """The sums of a pass in PARTS minibatches; singly: of each minibatch."""
    spec, b = filled((3, 4), SEGMENTS, 5, 0.3, True)
    rows = 3 * SEGMENTS * b.num_agents // PARTS
    config = make_config(minibatch_size=rows, learning_rate=3e-2, target_kl=target_kl).trainer
    torch.manual_seed(0)
    policy: Any = make_policy(PolicyConfig(hidden_size=16), spec)
    step = Step(list(policy.parameters()), config, CPU)
    order = torch.arange(b.num_segments)
    found = []
    ours = MLPUpdate(policy, b, config, step.optimizer, torch.tensor(0.2), slots=2)
    theirs = Gradients(
        policy, b, config, device=CPU, hooks=Hooks(), scaler=step.scaler, autocast=nullcontext,
        compile_mode=None, graphs=False, paths=FastPaths(),
    )  # fmt: skip
    for part in order.split(len(order) // PARTS) if singly or not native else [order]:
        before = step.sums.clone()
        whole = ours.run(part, b.value, step.sums) if native else step(theirs(part, None), due=True)
        found.append(step.sums - before)
        if not whole:
            break
    return found if singly else [step.sums]


@pytest.mark.parametrize("native", [True, False])
def test_the_first_minibatch_above_it_takes_no_step(native: bool) -> None:
    kls = [float(sums[KL]) for sums in update(native, None, singly=True)]
    assert len(kls) == PARTS
    highest = [i for i in range(1, PARTS) if kls[i] > 1.01 * max(kls[:i])]
    assert highest  # the policy moves away from the rollout's
    for i in highest:
        (stopped,) = update(native, kls[i] * 0.995)
        assert stopped[[MINIBATCHES, STEPS]].tolist() == [i + 1, i]
        assert float(stopped[KL]) == pytest.approx(sum(kls[: i + 1]), rel=1e-3)
        (further,) = update(native, kls[i] * 1.005)
        assert float(further[MINIBATCHES]) > i + 1 or i == PARTS - 1
        assert float(further[STEPS]) > i
    (whole,) = update(native, 2 * max(kls))
    assert whole[[MINIBATCHES, STEPS]].tolist() == [PARTS, PARTS]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("kind", ["compact", "robot"])
def test_the_next_update_begins_without_its_gradients(kind: str, native: bool) -> None:
    keys: dict[str, Any] = {"kind": kind, "native": native, "target_kl": 1e-4, "learning_rate": 0.02}
    stopped, (sums,) = trained(1, **keys)
    assert 0 < sums[STEPS] < sums[MINIBATCHES] < 9
    fresh, _ = trained(0, **keys)
    fresh.learner.load_state_dict(copy.deepcopy(stopped.learner.state_dict()))
    for name, array in vars(stopped.buffers).items():
        for one, two in zip(_tensors(getattr(fresh.buffers, name)), _tensors(array)):
            one.copy_(two)
    context = stopped._context()
    for ppo in (stopped, fresh):
        _no_limit(ppo)
        ppo.learner.update(context, 0)
    assert float(stopped.learner.sums[STEPS]) == 9
    for one, two in zip(stopped.policy.parameters(), fresh.policy.parameters()):
        assert torch.equal(one, two)


def _tensors(value: Any) -> list[torch.Tensor]:
    found = list(value.values()) if isinstance(value, dict) else [value]
    return [entry for entry in found if isinstance(entry, torch.Tensor)]


def _no_limit(ppo: PPO) -> None:
    ppo.config.trainer.target_kl = None
