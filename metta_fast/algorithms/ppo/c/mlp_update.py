"""Runs PPO's update of a network with two hidden layers in C on the CPU (mlp_update.h), in place of torch's operators.

With a small minibatch, torch spends most time on operator overhead; with a large one, each layer's rows go through
memory. In C, a tile of 64 rows runs forward and backward while it is in the cache.

Weights and Adam's moments are torch's tensors, changed in place, so checkpoints have the same format either way.

Place in the flow: learner.py uses it for each pass over the batch, if the path C_UPDATE was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from metta_fast.algorithms.ppo.c._mlp_update import MOST_LEAVES, Networks  # type: ignore[attr-defined]
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.env import EnvSpec
from metta_fast.distributed.group import current
from metta_fast.machine.spin import spin_seconds
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.fused_act.applies import MOST_HIDDEN, many_choices, not_plain_cpu, odd_weights
from metta_fast.policy.grid.sparse_layer import SCALE
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.plan import Plan, Trunk, plan_of
from metta_fast.runtime.adam import Adam
from metta_fast.runtime.fast_paths import (
    FastPath,
    Situation,
    action_masks,
    only_on_cpu,
    other_optimizer,
    random_shift,
    register,
)

ACTIVATIONS = {"relu": 0, "tanh": 1, "elu": 2}
"""Activations → their numbers in runtime/c/dense_layers.h."""
LEAST_ROWS = 512
"""Minibatch rows per thread, with a sparse first layer: for fewer, adding up the gradients costs more than it saves."""
MOST_WORK = 1 << 18
"""Largest minibatch rows times width with a dense first layer, which one core computes: torch splits larger products
among threads."""
MOST_ACTIONS = 256


def why_not(situation: Situation) -> str | None:
    """Returns why a policy on the CPU cannot be updated in C, or None."""
    trainer, spec = situation.trainer, situation.spec
    if current().active:
        return "several processes: torch's gradients are summed over them before each step"
    if why := not_plain_cpu(situation) or action_masks(situation) or other_optimizer(situation):
        return why
    if situation.chooses_segments or situation.extra_loss:
        return "a feature that chooses segments or adds to the loss"
    if trainer.advantage == "vtrace" or trainer.recompute == "minibatch" or trainer.gradient_accumulation > 1:
        return "trainer.advantage=vtrace, recompute=minibatch or gradient_accumulation"
    plan = plan_of(situation.policy)
    if isinstance(plan, str):
        return plan
    if any(not p.requires_grad for p in plan.parameters()):
        return "frozen weights"
    if why := _other_head(plan) or _other_trunks(plan, spec, trainer) or odd_weights(plan):
        return why
    return random_shift(situation)


def _other_head(plan: Plan) -> str | None:
    head = plan.head
    if isinstance(head, ActionHead):
        return many_choices(head)
    assert isinstance(head, BoxHead)  # plan_of knows no other
    if head.squash or head.width > MOST_ACTIONS:
        return f"policy.squash=true, or more than {MOST_ACTIONS} continuous actions"
    return "policy.state_std=true" if plan.log_std is None else None


def _other_trunks(plan: Plan, spec: EnvSpec, config: TrainerConfig) -> str | None:
    hidden = plan.actor.width
    for trunk in plan.trunks():
        if trunk.core is not None:
            return f"a recurrent policy ({type(trunk.core).__name__})"
        if len(trunk.sparse) + bool(trunk.flat) != 1 or len(trunk.flat) > MOST_LEAVES:
            return "an observation beside the grid's"
        if any(spec.obs[leaf].dtype != "float32" for leaf in trunk.flat):
            return "an observation that is neither a grid's nor float32"
        if trunk.activation != plan.actor.activation or trunk.activation not in ACTIVATIONS:
            return f"policy.activation={trunk.activation}"
        if hidden % 8:
            return f"policy.hidden_size={hidden} is not a multiple of 8"
        if trunk.sparse and hidden > MOST_HIDDEN:
            return f"policy.hidden_size={hidden} is above {MOST_HIDDEN}"
        if trunk.flat and hidden * config.minibatch_size > MOST_WORK:
            return f"minibatch_size times hidden_size is above {MOST_WORK}: too much work for one core"
    return None


C_UPDATE = register(
    FastPath(
        name="update in C",
        replaces="torch's operators, autograd and Adam (gradients.py, step.py)",
        why_not=why_not,
        unneeded=only_on_cpu,
        test="tests/ppo/test_mlp_update.py::test_it_is_torchs_update",
    )
)


def _parameters(plan: Plan) -> list[Tensor]:
    """Returns the weights in C's order: log_std if there is one, then weight and bias of each network's layers."""
    own: list[Tensor] = [] if plan.log_std is None else [plan.log_std]
    for trunk, last in zip(plan.trunks(), (plan.heads, plan.value)):
        first = next(iter(trunk.sparse.values())) if trunk.sparse else trunk.first
        for layer in (first, trunk.second, last):
            assert layer is not None
            own += [layer.weight, layer.bias]
    return own


@dataclass(frozen=True)
class Inputs:
    """Holds the arrays that a network's first layer reads."""

    leaves: tuple[str, ...]
    sparse: bool


class MLPUpdate:
    """Changes the policy's weights and the optimizer's state; all arrays are used in place."""

    def __init__(
        self,
        policy: nn.Module,
        buffers: Buffers,
        config: TrainerConfig,
        optimizer: Adam,
        clip: Tensor,
        *,
        slots: int | None = None,
    ) -> None:
        """Takes a policy for which `why_not` returns None.

        Args:
            optimizer: over all of the policy's parameters.
            clip: [], PPO's clip; each `run` reads it.
            slots: number of parts of a minibatch, each with a thread. None: one; with a sparse first layer, torch's
                current number of threads, but at least LEAST_ROWS rows each.
        """
        plan = plan_of(policy)
        assert isinstance(plan, Plan), plan
        self._buffers, self._config, self._optimizer, self._clip = buffers, config, optimizer, clip
        self._normalizer = plan.normalizer
        self._parameters = _parameters(plan)
        self._within = (torch.arange(buffers.bptt_horizon) * buffers.num_agents).unsqueeze(0)
        trunks = plan.trunks()
        self._inputs = [Inputs(trunk.leaves, bool(trunk.sparse)) for trunk in trunks]
        worth = config.minibatch_size // LEAST_ROWS if all(trunk.sparse for trunk in trunks) else 1
        self._slots = slots or max(1, min(torch.get_num_threads(), worth))
        head = plan.head
        nvec, width = (head.nvec, 0) if isinstance(head, ActionHead) else ((), head.num_params // 2)
        self._own = Networks(
            [
                (*self._first(trunk), last.out_features)
                for trunk, last in zip(trunks, (plan.heads, plan.value))
                if last is not None
            ],
            self._inputs[0] == self._inputs[-1],
            plan.heads.in_features,
            ACTIVATIONS[plan.actor.activation],
            SCALE.data_ptr(),
            nvec,
            width,
            self._slots,
            spin_seconds(self._slots - 1),
            config.minibatch_size,
        )

    def run(self, order: Tensor, rollout_value: Tensor, sums: Tensor) -> bool:
        """Runs one pass over the segments in the order given, and adds to `sums` (step.SUMS).

        Returns:
            False: target_kl was exceeded, and the rest of the pass was skipped.
        """
        steps = self._steps()
        self._point(rollout_value)
        rows, each, found = self._rows(order), self._config.minibatch_size, np.zeros(len(sums))
        whole: bool = self._own.run(rows.data_ptr(), len(rows), each, steps, self._settings(), found)
        sums += torch.from_numpy(found).to(sums.dtype)
        for parameter in self._parameters:
            self._optimizer.state[parameter]["step"].fill_(steps + found[-1])
        return whole

    def _point(self, rollout_value: Tensor) -> None:
        """Passes the addresses of weights, moments and the rollout's arrays to C."""
        b, own, state = self._buffers, self._own, self._optimizer.state
        own.tensors(
            [
                (p.data_ptr(), state[p]["exp_avg"].data_ptr(), state[p]["exp_avg_sq"].data_ptr())
                for p in self._parameters
            ]
        )
        for k, inputs in enumerate(self._inputs):
            if inputs.sparse:
                own.bytes(k, b.obs[inputs.leaves[0]].data_ptr())
            else:
                own.leaves(k, [self._leaf(name) for name in inputs.leaves])
        arrays = (b.action, b.logprob, rollout_value, b.advantage, b.returns, b.mask)
        own.rows(*(array.data_ptr() for array in arrays))

    @staticmethod
    def _first(trunk: Trunk) -> tuple[int, int]:
        """Returns (layout, columns) of a sparse first layer, or (-1, inputs) of a dense one."""
        for layer in trunk.sparse.values():
            return layer.layout.index, layer.layout.columns
        assert trunk.first is not None
        return -1, trunk.first.in_features

    def _leaf(self, name: str) -> tuple[int, int, int, int]:
        """Returns the addresses of a leaf's rows and of the normaliser's shift and scale (0: none), and a row's
        size."""
        rows, moments = self._buffers.obs[name], (0, 0)
        if self._normalizer is not None:
            part = slice(*self._normalizer.parts[name])
            moments = self._normalizer.shift[part].data_ptr(), self._normalizer.scale[part].data_ptr()
        return rows.data_ptr(), *moments, rows[0, 0].numel()

    def _rows(self, order: Tensor) -> Tensor:
        """Returns the numbers of the segments' rows, int64 [segments · bptt_horizon]."""
        b = self._buffers
        n = b.num_agents
        first = order // n * (b.bptt_horizon * n) + order % n
        return (first.unsqueeze(1) + self._within).flatten().contiguous()

    def _settings(self) -> dict[str, float | int]:
        """Returns the current values of mf_settings (ppo_loss.h)."""
        c, group = self._config, self._optimizer.param_groups[0]
        return {
            "clip": float(self._clip),
            "vf_coef": c.vf_coef,
            "vf_clip": -1.0 if c.vf_clip_coef is None else c.vf_clip_coef,
            "entropy_coef": c.entropy_coef,
            "max_norm": c.max_grad_norm,
            "target_kl": -1.0 if c.target_kl is None else c.target_kl,
            "rate": float(group["lr"]),
            "beta1": group["betas"][0],
            "beta2": group["betas"][1],
            "epsilon": group["eps"],
            "normalize_advantage": int(c.normalize_advantage),
        }

    def _steps(self) -> float:
        """Returns the number of steps taken so far. Makes Adam's state for parameters without one."""
        state = self._optimizer.state
        for p in self._parameters:
            if not state[p]:
                state[p]["step"] = torch.zeros((), dtype=torch.float32)
                state[p]["exp_avg"], state[p]["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return float(state[self._parameters[0]]["step"])
