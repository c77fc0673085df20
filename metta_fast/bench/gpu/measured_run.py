"""Builds the run whose parts `--gpu` measures, and defines what a part is (in a child: child_program.py).

MeasuredRun ─► rollout_parts.py, update_parts.py, scan_parts.py: Part ─► parts.py measures each
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from metta_fast.bench.gpu import plain_torch
from metta_fast.bench.gpu.clock import Call
from metta_fast.bench.gpu.training import Training
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.grid.sparse_layer import product_dtype
from metta_fast.policy.network import Network
from metta_fast.policy.plan import Plan, plan_of
from metta_fast.rollout.device_rollout import DeviceRollout

FORMS = ("ours", "eager", "compiled")


@dataclass
class Part:
    """One part of an epoch."""

    name: str
    calls: int
    """Calls in an epoch."""
    forms: dict[str, Call] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Form → reason why it cannot be measured."""


class MeasuredRun:
    """Holds a run after some epochs: its real buffers, policy and learner, and minibatches to work on."""

    def __init__(self, overrides: list[str]) -> None:
        """Builds the run and burns it in."""
        self.training = Training(overrides)
        self.algorithm = self.training.algorithm
        self.device = self.training.device
        self.learner = self.algorithm.learner
        self.rollout = cast("DeviceRollout", self.algorithm.rollout)
        self.buffers = self.algorithm.buffers
        policy = self.algorithm.policy
        assert isinstance(policy, Network), f"--gpu measures the parts of a Network, not of {type(policy)}"
        self.policy = policy
        self.plain = plain_torch.plain_policy(policy)
        trainer = self.training.config.trainer
        self.minibatches = trainer.update_epochs * trainer.batch_size // trainer.minibatch_size
        size = trainer.minibatch_size // trainer.bptt_horizon
        order = torch.randperm(self.buffers.num_segments, device=self.device)
        self.segments = [order[i : i + size] for i in range(0, len(order), size)]
        """[B] each: a different minibatch for each call."""
        plan = plan_of(policy)
        assert isinstance(plan, Plan), plan
        self._plan = plan

    def first_at(self, rows: Tensor) -> Tensor:
        """Returns the first layer's output [R, width] for rows [R] of the buffers, in the dtype of its products."""
        first = self._plan.actor.first_layer(self.buffers.obs, rows)
        return first.to(product_dtype(rows.device.type))


def encoder_of(policy: Network) -> MLPEncoder:
    """Returns the policy's encoder, which must be the MLP's."""
    assert isinstance(policy.encoder, MLPEncoder)
    return policy.encoder


def in_all_forms(name: str, calls: int, ours: Callable[[], None], plain: Callable[[], None]) -> Part:
    """Makes a part whose forms take no arguments."""
    compiled = torch.compile(plain, dynamic=False)
    forms: dict[str, Call] = {
        "ours": lambda _: ours(),
        "eager": lambda _: plain(),
        "compiled": lambda _: compiled(),
    }
    return Part(name, calls, forms)
