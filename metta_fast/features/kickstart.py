"""Pulls the policy towards one or several teachers at the start of a run: kickstarting.

    features={kickstart: {teachers: runs/x, coef: 1.0, value_coef: 0.5, until: 0.5}}
    features={kickstart: {teachers: {runs/walker: 1.0, runs/runner: 0.5}}}

With the teachers' policies πᵢ, values Vᵢ and weights wᵢ,

    L = λ · Σᵢ wᵢ · ( coef · mean KL(πᵢ(·|s) ‖ π(·|s)) + value_coef · ½ mean (V(s) − Vᵢ(s))² )
    λ = max(0, 1 − progress / until)

over the rows that are steps. λ falls linearly to 0 at the share `until` of trainer.total_timesteps; from then on the
teachers do not run. They run once an epoch over the whole rollout, also recurrent ones, whose states go on from epoch
to epoch as the policy's own do. Their values are of their own scale of rewards: value_coef needs the same
trainer.normalize_reward in both runs.

Sources: Schmitt et al. 2018 (arXiv:1803.03835); for distillation with a value's term Czarnecki et al. 2019
(arXiv:1902.02186).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Built, Context, Hooks
from metta_fast.config.keys import config_to_dict
from metta_fast.config.trust import NOTHING, check_code, code_named
from metta_fast.contracts.errors import UserError
from metta_fast.features.every import number
from metta_fast.inference.evaluate import find_checkpoint
from metta_fast.inference.saved_state import policy_state, saved_config
from metta_fast.policy import make_policy
from metta_fast.policy.base import Policy
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.mixed_head import MixedHead
from metta_fast.policy.weights import load_weights
from metta_fast.runtime.state_tensors import tensor
from metta_fast.runtime.torch_setup import autocast
from metta_fast.storage.altered import WrongState, entry
from metta_fast.storage.run_folder import find_folders

NAME = "kickstart"
CHUNK = 1 << 16
"""About how many rows a teacher runs over at once."""
Heads = ActionHead | BoxHead | MixedHead


def add(
    hooks: Hooks,
    *,
    teachers: Any = None,
    coef: float = 1.0,
    value_coef: float = 0.5,
    until: float = 0.5,
) -> None:
    """Adds the loss to each minibatch.

    Args:
        teachers: a run or checkpoint, a list of them, or {run: weight}.
        coef: weight of the KL divergence.
        value_coef: weight of the value's term; 0: none.
        until: share of the run after which the teachers are gone, above 0 … 1.

    Raises:
        UserError: a value out of range, or no such run.
    """
    path = f"features.{NAME}"
    weights = _weights(teachers)
    number(f"{path}.coef", coef, 0.0, 1e6)
    number(f"{path}.value_coef", value_coef, 0.0, 1e6)
    number(f"{path}.until", until, 1e-6, 1.0)
    if coef == 0 and value_coef == 0:
        return
    kick = Kickstart(weights, float(coef), float(value_coef), float(until))
    hooks.on_build.append(kick.build)
    hooks.on_update.append(kick.begin)
    hooks.extra_loss.append(kick)
    hooks.states[NAME] = kick


def _weights(teachers: Any) -> dict[str, float]:
    """Returns {run: weight}. Raises UserError."""
    path = f"features.{NAME}.teachers"
    if isinstance(teachers, str):
        teachers = [teachers]
    if isinstance(teachers, (list, tuple)):
        if len({str(name) for name in teachers}) < len(teachers):
            raise UserError(f"{path}={list(teachers)}: a teacher is named twice; give {{run: weight}}")
        teachers = dict.fromkeys(teachers, 1.0)
    if not isinstance(teachers, Mapping) or not teachers:
        raise UserError(
            f"{path}={teachers!r}: expected a run or checkpoint, a list of them, or {{run: weight}}; "
            f"give features.{NAME}.teachers=runs/…"
        )
    found = {}
    for name, weight in teachers.items():
        if not isinstance(name, str) or next(find_folders(name, "runs"), None) is None:
            raise UserError(f"{path}={name!r}: no such folder; expected a run or one of its checkpoints")
        found[name] = number(f"{path}.{name}", weight, 0.0, 1e6)
    return found


class Teacher:
    """A policy of another run, and what it says of the rollout in the buffers.

    Attributes:
        params, value: [T, N, P], [T, N] on the buffers' device.
        state: [layers, N, size] on the policy's device: the core's, before the next rollout.
    """

    def __init__(self, name: str, weight: float, built: Built) -> None:
        self.name, self.weight = name, weight
        self.policy = load_teacher(name, built)
        b = built.buffers
        self.params = torch.zeros(b.horizon, b.num_agents, self.policy.head.num_params, device=b.device)
        self.value = torch.zeros(b.horizon, b.num_agents, device=b.device)
        self.state = self.policy.initial_state(b.num_agents, built.device)

    @torch.no_grad()
    def look(self, built: Built) -> None:
        """Runs over the rows of the rollout; the state goes on with the next one."""
        b, rows = built.buffers, max(1, CHUNK // built.buffers.num_agents)
        state = self.state
        for t in range(0, b.horizon, rows):
            part = slice(t, min(t + rows, b.horizon))
            obs = {name: leaf[part].to(built.device) for name, leaf in b.obs.items()}
            output = self.policy(obs, state, b.reset[part].to(built.device))
            state = output.state
            self.params[part] = output.params.to(b.device)
            self.value[part] = output.value.to(b.device)
        self.state.copy_(state)


class Kickstart:
    """Owns the teachers."""

    def __init__(self, weights: Mapping[str, float], coef: float, value_coef: float, until: float) -> None:
        self.weights, self.coef, self.value_coef, self.until = dict(weights), coef, value_coef, until
        self.teachers: list[Teacher] = []
        self._scale = 0.0
        """λ of the present update."""

    def build(self, built: Built) -> None:
        """Loads the teachers."""
        self._built = built
        head = getattr(built.policy, "head", None)
        if not isinstance(head, Heads):
            raise UserError(
                f"features.{NAME}: the policy's head is a {type(head).__name__}, and KL divergences are known for "
                "those of metta_fast.Policy alone; leave the feature out"
            )
        self._head: Heads = head
        self.teachers = [Teacher(name, weight, built) for name, weight in self.weights.items()]
        for teacher in self.teachers:
            if self.value_coef and not set(teacher.policy.critic_leaves) <= set(built.spec.obs):
                raise UserError(
                    f"features.{NAME}.teachers={teacher.name}: its value reads observations that this environment "
                    f"lacks; give features.{NAME}.value_coef=0"
                )

    def begin(self, context: Context) -> None:
        """Lets the teachers look at the rollout, unless they are gone."""
        self._scale = max(0.0, 1.0 - context.progress / self.until)
        if self._scale:
            config = self._built.config.trainer
            with autocast(config, self._built.device):
                for teacher in self.teachers:
                    teacher.look(self._built)

    def __call__(self, minibatch: Any, output: Any) -> Tensor:
        loss = output.value.new_zeros(())
        if not self._scale:
            return loss
        mask = minibatch.mask
        for teacher in self.teachers:
            params, value = (
                array.flatten(0, 1)
                .index_select(0, minibatch.rows)
                .unflatten(0, mask.shape)
                .to(mask.device, non_blocking=True)
                for array in (teacher.params, teacher.value)
            )
            if self.coef:
                apart = divergence(self._head, params, output.params, mask, minibatch.action_mask)
                loss = loss + teacher.weight * self.coef * _mean(apart, mask)
            if self.value_coef:
                error = torch.where(mask, output.value - value, 0.0).square()
                loss = loss + teacher.weight * self.value_coef * 0.5 * _mean(error, mask)
        return self._scale * loss

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns the teachers' states, in their order."""
        return {"cores": [teacher.state.clone() for teacher in self.teachers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues with the states; other teachers than the saved ones begin anew."""
        cores = entry(state, "cores", f"features.{NAME}.")
        if not isinstance(cores, list):
            raise WrongState(f"features.{NAME}.cores", "is not a list")
        if len(cores) != len(self.teachers):
            return
        for number_, (teacher, core) in enumerate(zip(self.teachers, cores)):
            teacher.state.copy_(tensor(core, f"features.{NAME}.cores[{number_}]", teacher.state.shape))


def load_teacher(name: str, built: Built) -> Policy:
    """Returns the policy of a run, frozen, on the run's device.

    Raises:
        UserError: no such run, code that may not be imported, or a policy of other spaces.
    """
    found = find_checkpoint(str(Path(name)), best=False)
    config = saved_config(found)
    named = [one for one in code_named(config_to_dict(config)) if one.key.startswith("policy.")]
    check_code(named, found.meta, found.run, NOTHING)
    policy = make_policy(config.policy, built.spec)
    cure = (
        "A teacher needs the observation and action space of this run: leave it out, or give this run's "
        "environment the teacher's"
    )
    load_weights(policy, policy_state(found), f"features.{NAME}.teachers={name}", cure)
    return policy.to(built.device).eval().requires_grad_(False)


def divergence(
    head: Heads, teacher: Tensor, params: Tensor, mask: Tensor, action_mask: Tensor | None = None
) -> Tensor:
    """Returns KL(teacher ‖ policy) [L, B] of two distributions by their parameters [L, B, P]; 0 in masked rows.

    With squashed actions it is that of the distributions before tanh, which is the same.
    """
    teacher, params = (torch.where(mask.unsqueeze(-1), x.float(), 0.0) for x in (teacher, params))
    if isinstance(head, MixedHead):
        size = head.discrete.num_params
        first, second = (x.split([size, head.box.num_params], -1) for x in (teacher, params))
        choices = divergence(head.discrete, first[0], second[0], mask, action_mask)
        return choices + divergence(head.box, first[1], second[1], mask)
    if isinstance(head, BoxHead):
        return _of_normals(head, teacher, params)
    if action_mask is not None:
        teacher, params = head.masked(teacher, action_mask), head.masked(params, action_mask)
    total = params.new_zeros(params.shape[:-1])
    for theirs, ours in zip(teacher.split(head.nvec, -1), params.split(head.nvec, -1)):
        log_p, log_q = theirs.log_softmax(-1), ours.log_softmax(-1)
        p = log_p.exp()
        total = total + torch.where(p > 0, p * (log_p - log_q), 0.0).sum(-1)
    return torch.where(mask, total, 0.0)


def _of_normals(head: BoxHead, teacher: Tensor, params: Tensor) -> Tensor:
    """Returns the divergence of independent normal distributions."""
    (mean, log_std), (own, own_log_std) = head.split(teacher), head.split(params)
    ratio = (2 * (log_std - own_log_std)).exp()
    apart = ((mean - own) / own_log_std.exp()).square()
    return (0.5 * (ratio + apart - 1) + own_log_std - log_std).sum(-1)


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over the rows where mask is True, of an x that is 0 in the others."""
    return x.sum() / mask.sum().clamp(min=1)
