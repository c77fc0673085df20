"""Makes one optimizer step in C or by torch, for tests that compare the two."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.c.mlp_update import MLPUpdate, why_not
from metta_fast.algorithms.ppo.fast_paths import situation_of
from metta_fast.algorithms.ppo.gradients import Gradients
from metta_fast.algorithms.ppo.step import Step
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvSpec
from metta_fast.runtime.fast_paths import FastPaths

CPU = torch.device("cpu")


def one_update(
    native: bool, policy: Any, b: Buffers, whole: Config, spec: EnvSpec, *, slots: int | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Steps once on a minibatch of all rows.

    Args:
        native: in C, which must apply; else by torch.
        slots: MLPUpdate's.

    Returns:
        The statistics, in the order of SUMS, and Adam's first moments, which are the gradients times 0.1.
    """
    config = whole.trainer
    step = Step(list(policy.parameters()), config, CPU)
    order = torch.arange(b.num_segments)
    if native:
        assert why_not(situation_of(policy, whole, spec, CPU, Hooks())) is None
        update = MLPUpdate(policy, b, config, step.optimizer, torch.tensor(config.clip_coef), slots=slots)
        assert update.run(order, b.value, step.sums)
    else:
        gradients = Gradients(
            policy, b, config, device=CPU, hooks=Hooks(), scaler=step.scaler, autocast=nullcontext,
            compile_mode=None, graphs=False, paths=FastPaths(),
        )  # fmt: skip
        step(gradients(order, None), due=True)
    return step.sums, [step.optimizer.state[p]["exp_avg"] for p in policy.parameters()]
