"""Fills the buffers with a grid policy on the CPU: the inference of a row is one call of C (policy/fused_act).

Place in the flow: as rollout.py, which drives the vector. Actions are those of torch, up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metta_fast.contracts.vector import Block, VectorEnv
from metta_fast.machine.spin import spin_seconds
from metta_fast.policy.base import Policy
from metta_fast.policy.fast_paths import no_sparse_layer
from metta_fast.policy.fused_act.applies import not_in_c, not_plain_cpu
from metta_fast.policy.fused_act.c_act import CpuAct
from metta_fast.policy.plan import plan_of
from metta_fast.rollout.rollout import Rollout
from metta_fast.rollout.transfer import Transfer
from metta_fast.runtime.fast_paths import FastPath, Situation, action_masks, only_on_cpu, register

LEAST_ROWS = 64
"""Least number of a block's rows for each thread."""


def why_not(situation: Situation) -> str | None:
    """Returns why the rollout of a policy on the CPU cannot be in C, or None."""
    if why := not_plain_cpu(situation) or action_masks(situation):
        return why
    plan = plan_of(situation.policy)
    if isinstance(plan, str):
        return plan
    if why := not_in_c(plan):
        return why
    (leaf,) = plan.actor.sparse
    for block in situation.vec.blocks if situation.vec is not None else ():
        action, rows = block.rows.action, block.rows.obs[leaf]
        if action.dtype != np.int32 or not action.flags.c_contiguous or not rows.flags.c_contiguous:
            return "the vector's actions are not int32, or its rows are not side by side"
    return None


C_ROLLOUT = register(
    FastPath(
        name="rollout in C",
        replaces="the policy's forward and sampling by torch (rollout.py)",
        why_not=why_not,
        unneeded=lambda s: only_on_cpu(s) or no_sparse_layer(s),
        test="tests/ppo/test_cpu_rollout.py::test_a_rollout_is_torchs",
        modules=("metta_fast.policy.fused_act.c_act",),
    )
)


class SeenTransfer(Transfer):
    """Copies all but one leaf of the observation, which is copied where it is read."""

    def __init__(self, *args: Any, leaf: str, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.leaf = leaf

    def _load_obs(self, block: Block, t: int) -> None:
        for name, leaf in self._sources[block.index].items():
            if name != self.leaf:
                np.copyto(self._obs[name][t, block.start : block.stop], leaf)

    def seen(self, block: Block) -> int:
        """Returns the address of the leaf's rows."""
        address: int = self._sources[block.index][self.leaf].ctypes.data
        return address


class CpuRollout(Rollout):
    """Rollout whose policy runs in C; used if the path C_ROLLOUT was chosen."""

    def __init__(self, vec: VectorEnv, policy: Policy, *args: Any, **keys: Any) -> None:
        rows = max(block.size for block in vec.blocks)
        threads = max(1, min(torch.get_num_threads(), rows // LEAST_ROWS))
        self._acts = CpuAct(policy, threads, spin_seconds(threads - 1))
        super().__init__(vec, policy, *args, **keys)

    def _make_transfer(self, zero_copy: bool) -> SeenTransfer:
        self._seen = SeenTransfer(
            self.vec, self.buffers, self.device, zero_copy=zero_copy, leaf=self._acts.leaf
        )
        return self._seen

    def collect(self, epoch: int, rows: int | None = None) -> None:
        self._acts.weights()
        super().collect(epoch, rows)

    def _act_on(self, block: Block, t: int) -> None:
        buffers, a, b = self.buffers, block.start, block.stop
        seen, obs = self._seen.seen(block), buffers.obs[self._acts.leaf][t, a:b]
        value = buffers.value[t, a:b]
        if t == self._last:
            self._acts.values(seen, obs, value)
        else:
            given = block.rows.action.ctypes.data
            self._acts(
                seen, obs, self._noise[t, a:b], buffers.action[t, a:b], given, buffers.logprob[t, a:b], value
            )
        self.timer.lap("inference")
