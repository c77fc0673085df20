"""One rollout with environments and a grid policy on the CPU: a row's inference is one call of C (policy/cpu_act.py).

Place in the flow: as rollout.py, which drives the vector. What is drawn is what torch draws, up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.vector import Block, VectorEnv
from metta_fast.machine.spin import spin_seconds
from metta_fast.policy.fused_act.applies import hooks_on, plain_cpu
from metta_fast.policy.fused_act.c_act import CpuAct
from metta_fast.policy.fused_act.grid_net import grid_net, not_a_grid_net
from metta_fast.rollout.rollout import Rollout
from metta_fast.rollout.transfer import Transfer

LEAST_ROWS = 64
"""Of a block, for each thread."""


def supports(
    policy: Any, buffers: Buffers, vec: VectorEnv, config: TrainerConfig, device: torch.device
) -> str | None:
    """What stands against it, or None."""
    if not plain_cpu(config, device):
        return "trainer.device, precision or compile"
    if hooks_on(policy):
        return "hooks on the policy"
    against = not_a_grid_net(policy)
    if against is not None:
        return against
    for block in vec.blocks:
        action, leaf = block.rows.action, block.rows.obs[grid_net(policy).leaf]
        if action.dtype != np.int32 or not action.flags.c_contiguous or not leaf.flags.c_contiguous:
            return "the vector's actions are not int32, or its rows not side by side"
    return None


class SeenTransfer(Transfer):
    """But for one leaf of the observation, which is copied where it is read."""

    def __init__(self, *args: Any, leaf: str, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.leaf = leaf

    def _load_obs(self, block: Block, t: int) -> None:
        for name, leaf in self._sources[block.index].items():
            if name != self.leaf:
                np.copyto(self._obs[name][t, block.start : block.stop], leaf)

    def seen(self, block: Block) -> int:
        """The address of the leaf's rows."""
        address: int = self._sources[block.index][self.leaf].ctypes.data
        return address


class CpuRollout(Rollout):
    """As `Rollout`, where `supports` gives None."""

    def __init__(self, vec: VectorEnv, policy: Any, *args: Any, **keys: Any) -> None:
        rows = max(block.size for block in vec.blocks)
        threads = max(1, min(torch.get_num_threads(), rows // LEAST_ROWS))
        self._acts = CpuAct(policy, threads, spin_seconds(threads - 1))
        super().__init__(vec, policy, *args, **keys)

    def _make_transfer(self, zero_copy: bool) -> SeenTransfer:
        self._seen = SeenTransfer(
            self.vec, self.buffers, self.device, zero_copy=zero_copy, leaf=self._acts.leaf
        )
        return self._seen

    def collect(self, epoch: int) -> None:
        self._acts.weights()
        super().collect(epoch)

    def _act_on(self, block: Block, t: int) -> None:
        buffers, a, b = self.buffers, block.start, block.stop
        seen, obs = self._seen.seen(block), buffers.obs[self._acts.leaf][t, a:b]
        value = buffers.value[t, a:b]
        if t == buffers.horizon:
            self._acts.values(seen, obs, value)
        else:
            given = block.rows.action.ctypes.data
            self._acts(
                seen, obs, self._noise[t, a:b], buffers.action[t, a:b], given, buffers.logprob[t, a:b], value
            )
        self.timer.lap("inference")
