"""Recomputes the values of a rollout's rows with the current network, for trainer.recompute=pass.

    each pass but the first:  revalue ─► advantage ─► minibatches

Advantages from the rollout's own values are stale by the third pass. Source: Andrychowicz et al. 2020
(arXiv 2006.05990), section 3.5.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.policy.base import Policy

CHUNK = 1 << 16
"""Approximate number of rows per call of the policy."""


@torch.no_grad()
def revalue(
    policy: Policy, buffers: Buffers, device: torch.device, autocast: Callable[[], AbstractContextManager]
) -> None:
    """Writes all of `buffers.value` [T+1, N]. The core starts from the rollout's first state."""
    rows = max(1, CHUNK // buffers.num_agents)
    state = buffers.first_state().to(device)
    with autocast():
        for t in range(0, buffers.horizon + 1, rows):
            part = slice(t, t + rows)
            obs = {name: leaf[part].to(device) for name, leaf in buffers.obs.items()}
            output = policy(obs, state, buffers.reset[part].to(device))
            state = output.state
            buffers.value[part] = output.value.to(buffers.device)
