"""Runs updates of SAC and TD3 for plain networks in C on the CPU (sac_update.h), in place of torch's operators.

At the published sizes (2×256 units, batches of 256) torch spends more than half of an update between its products:
dispatch, autograd, copies, Adam. In C a batch's rows go forward and backward on all threads, and each tile of weights
is stepped as soon as its gradient is there. Weights, targets and moments are torch's tensors, changed in place, so
checkpoints are the same either way.

Place in the flow: learner.py uses it for each chunk of updates, if the path C_UPDATE was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.algorithms.sac.c._sac_update import (  # type: ignore[attr-defined]
    MOST_LAYERS,
    MOST_LEAVES,
    Updates,
)
from metta_fast.machine.spin import spin_seconds
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.fused_act.applies import not_plain_cpu, odd_weights
from metta_fast.policy.plan import Plan, plan_of
from metta_fast.runtime.fast_paths import FastPath, Situation, only_on_cpu, random_shift, register

if TYPE_CHECKING:
    from metta_fast.algorithms.sac.learner import Learner
    from metta_fast.algorithms.sac.step import Step

ACTIVATIONS = {"relu": 0, "tanh": 1, "elu": 2}
"""Activations → their numbers in runtime/c/dense_layers.h."""


def why_not(situation: Situation) -> str | None:
    """Returns why updates on the CPU cannot be done in C, or None."""
    own, spec, trainer = situation.config.algorithm, situation.spec, situation.trainer
    if why := not_plain_cpu(situation) or random_shift(situation):
        return why
    if trainer.max_grad_norm > 0:
        return (
            f"trainer.max_grad_norm={trainer.max_grad_norm:g}: it steps each weight before the norm is known"
        )
    for key in ("layer_norm", "batch_norm"):
        if own.get(key):
            return f"algorithm.{key}=true"
    if own.get("critic", "mean") != "mean":
        return f"algorithm.critic={own['critic']}"
    if own.get("critic_layers", 2) >= MOST_LAYERS:
        return f"algorithm.critic_layers={own['critic_layers']}"
    plan = plan_of(situation.policy)
    if isinstance(plan, str):
        return plan
    if not isinstance(plan.head, BoxHead):
        return "discrete actions"
    if own["name"] == "td3" and plan.normalizer is not None:
        return "policy.normalize_obs with algorithm=td3"
    if any(not p.requires_grad for p in plan.parameters()):
        return "frozen weights"
    trunk = plan.actor
    if plan.critic is not None or trunk.core is not None or trunk.sparse or trunk.first is None:
        return "a network that is not two dense layers over numbers side by side"
    if trunk.activation not in ACTIVATIONS or situation.config.policy.activation not in ACTIVATIONS:
        return f"policy.activation={trunk.activation}"
    if any(leaf.dtype != "float32" for leaf in spec.obs.values()) or len(spec.obs) > MOST_LEAVES:
        return "an observation that is not float32"
    return odd_weights(plan)


C_UPDATE = register(
    FastPath(
        name="off-policy updates in C",
        replaces="torch's operators, autograd and Adam (algorithms/sac/learner.py)",
        why_not=why_not,
        unneeded=only_on_cpu,
        test="tests/sac/test_c_update.py::test_it_is_torchs_update",
    )
)


ROWS_A_THREAD = 32
"""A thread with fewer rows of a batch waits longer for the others than it computes."""


class CUpdate:
    """Changes the learner's weights, targets and moments; all arrays are used in place."""

    def __init__(self, learner: Learner, *, threads: int | None = None, wide: bool = True) -> None:
        """Takes a learner for which `why_not` returns None.

        Args:
            threads: None: torch's present number, but no more than ROWS_A_THREAD allows.
            wide: use AVX-512 where the processor has it.
        """
        plan = plan_of(learner.policy)
        assert isinstance(plan, Plan), plan
        assert plan.actor.first is not None
        self._learner, self._plan = learner, plan
        objective, keys, critics = learner.objective, learner.keys, learner.critics
        head = learner.policy.head
        assert isinstance(head, BoxHead)
        temperature = learner.temperature
        self._soft = temperature is not None
        self._layers = [plan.actor.first, plan.actor.second, plan.heads]
        adapts = learner.temperature_step is not None
        rule: dict[str, Any] = {
            "width": head.width,
            "squash": int(head.squash),
            "soft": int(self._soft),
            "state_std": int(plan.log_std is None),
            "noise": getattr(objective, "noise", 0.0),
            "clip": getattr(objective, "clip", 0.0),
            "target_entropy": float(temperature.target or 0.0) if temperature is not None else 0.0,
            "tau": float(keys.tau),
            "adapts": int(adapts),
            "delay": int(keys.actor_delay),
        }
        shapes = [layer.weight.shape for layer in critics.hidden_layers()]
        widths = [shapes[0][1], *(shape[2] for shape in shapes), 1]
        threads = threads or max(
            1, min(torch.get_num_threads(), learner.config.minibatch_size // ROWS_A_THREAD)
        )
        self._own = Updates(
            rule,
            critics.members,
            learner.config.minibatch_size,
            learner.chunk,
            objective.draws,
            [plan.actor.first.in_features, *(layer.out_features for layer in self._layers)],
            ACTIVATIONS[plan.actor.activation],
            widths,
            ACTIVATIONS[critics.activation],
            threads,
            wide,
            spin_seconds(threads - 1),
        )

    @property
    def wide(self) -> bool:
        """Whether it uses AVX-512 although the module was built without."""
        return bool(self._own.wide)

    def begin(self) -> None:
        """Takes the present weights; call it before updates, once anything else may have changed them."""
        learner, plan = self._learner, self._plan
        actor = [(p, learner.actor_step) for layer in self._layers for p in (layer.weight, layer.bias)]
        target = getattr(learner.objective, "target", None)
        of_target: Sequence[Tensor | None] = [None] * len(actor)
        if target is not None:
            theirs = plan_of(target)
            assert isinstance(theirs, Plan), theirs
            assert theirs.actor.first is not None
            layers = [theirs.actor.first, theirs.actor.second, theirs.heads]
            of_target = [p for layer in layers for p in (layer.weight, layer.bias)]
        self._own.tensors(
            [self._addresses(p, step, slow) for (p, step), slow in zip(actor, of_target)],
            [self._critic(e) for e in range(learner.critics.members)],
            None
            if plan.log_std is None or not self._soft
            else self._addresses(plan.log_std, learner.actor_step),
            self._temperature(),
        )
        leaves = plan.actor.flat, learner.critics.leaves
        self._own.views(*([self._leaf(name) for name in names] for names in leaves))

    def run(self, count: int, index: Tensor, left: Tensor, noise: Tensor, factor: Tensor | None) -> None:
        """Does `count` updates, and adds to the learner's sums.

        Args:
            index, left: [≥ count, batch] as `Replay.sample` gives them. noise: [≥ count, draws, batch, width].
            factor: [] that rewards are multiplied by; None: 1.
        """
        learner, replay = self._learner, self._learner.replay
        weight, reward, after, discount = replay.window(index[:count].flatten(), left[:count].flatten())
        if factor is not None:
            reward = reward * factor.float()
        steps = np.array([_steps(step) for step in self._steps()])
        before, sums = steps.copy(), np.zeros(len(learner.sums))
        arrays = (index, after, replay.action, reward, discount, weight, noise)
        assert all(array.is_contiguous() for array in arrays)
        group = learner.critic_step.optimizer.param_groups[0]
        rates = {
            "rate": float(group["lr"]),
            "beta1": group["betas"][0],
            "beta2": group["betas"][1],
            "epsilon": group["eps"],
        }
        self._own.run(count, learner.updates, *(array.data_ptr() for array in arrays), rates, steps, sums)
        learner.sums += torch.from_numpy(sums).to(learner.sums.dtype)
        for step, taken in zip(self._steps(), steps - before):
            if step is not None and taken:
                for p in step.parameters:
                    step.optimizer.state[p]["step"] += float(taken)

    def _steps(self) -> tuple[Step | None, ...]:
        learner = self._learner
        return learner.critic_step, learner.actor_step, learner.temperature_step

    def _critic(self, e: int) -> list[tuple[int, int, int, int]]:
        """Returns the addresses of a critic's weights and biases."""
        learner = self._learner
        layers = zip(
            [*learner.critics.hidden_layers(), learner.critics.last],
            [*learner.target.hidden_layers(), learner.target.last],
        )
        return [
            self._addresses(own, learner.critic_step, slow, e)
            for layer, other in layers
            for own, slow in ((layer.weight, other.weight), (layer.bias, other.bias))
        ]

    @staticmethod
    def _addresses(
        p: Tensor, step: Step, target: Tensor | None = None, member: int = 0
    ) -> tuple[int, int, int, int]:
        """Returns the addresses of a tensor, its moments, and its target or 0; of one member of an ensemble."""
        state = moments(step, p)
        skip = 4 * member * (p.numel() // p.shape[0]) if member else 0
        own = [array.data_ptr() + skip for array in (p, state["exp_avg"], state["exp_avg_sq"])]
        return own[0], own[1], own[2], 0 if target is None else target.data_ptr() + skip

    def _temperature(self) -> tuple[int, ...] | None:
        learner = self._learner
        if learner.temperature is None:
            return None
        alpha = learner.temperature.log_alpha
        if learner.temperature_step is None:
            return alpha.data_ptr(), 0, 0
        return self._addresses(alpha, learner.temperature_step)[:3]

    def _leaf(self, name: str) -> tuple[int, int, int, int]:
        """Returns the addresses of a leaf's rows and of the normaliser's shift and scale (0: none), and a row's
        size."""
        rows, normalizer, found = self._learner.replay.obs[name], self._plan.normalizer, (0, 0)
        if normalizer is not None:
            part = slice(*normalizer.parts[name])
            found = normalizer.shift[part].data_ptr(), normalizer.scale[part].data_ptr()
        return rows.data_ptr(), *found, rows[0, 0].numel()


def moments(step: Step, p: Tensor) -> dict[str, Tensor]:
    """Returns Adam's state of a parameter; makes it for one without."""
    state: dict[str, Tensor] = step.optimizer.state[p]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
    return state


def _steps(step: Step | None) -> float:
    """Returns the number of steps taken so far."""
    return 0.0 if step is None else float(moments(step, step.parameters[0])["step"])
