"""The update of a grid policy without memory on the CPU by C (grid_update.h): no tensors between bytes and weights.

torch's way through a minibatch gathers the observations, keeps each layer's output for the backward pass and writes
what each operator gives to memory; its products of this size ran at half of a core's arithmetic. Here a tile of 64
rows goes forward and backward while it is in the cache.

Place in the flow: native_update.py takes it where `supports` finds nothing against it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.c._grid_update import Network  # type: ignore[attr-defined]
from metta_fast.algorithms.ppo.c.base import NativeUpdate
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.machine.spin import spin_seconds
from metta_fast.policy.fused_act.grid_net import grid_net, not_a_grid_net
from metta_fast.policy.grid.sparse_layer import SCALE

LEAST_ROWS = 512
"""Of a minibatch, for each thread: its gradients of all weights must be worth adding up."""


def supports(policy: Any, buffers: Buffers, config: TrainerConfig) -> str | None:
    """What stands against it beside `native_update.unsupported`, or None."""
    against = not_a_grid_net(policy)
    if against is not None:
        return against
    if buffers.obs[grid_net(policy).leaf].dtype != torch.uint8 or buffers.action.dtype != torch.int32:
        return "observations or actions of another dtype"
    return None


class GridUpdate(NativeUpdate):
    """On several threads."""

    def __init__(
        self,
        policy: Any,
        buffers: Buffers,
        config: TrainerConfig,
        optimizer: Any,
        clip: Tensor,
        *,
        slots: int | None = None,
    ) -> None:
        """Only where `supports` gives None.

        Args:
            slots: parts into which a minibatch is cut; None: as many as torch has threads now, if they are worth it.
        """
        super().__init__(policy, buffers, config, optimizer, clip)
        net = grid_net(policy)
        self._leaf = net.leaf
        self._parameters = [*net.parameters()]
        self._slots = slots or max(1, min(torch.get_num_threads(), config.minibatch_size // LEAST_ROWS))
        self._own = Network(
            net.first.layout.index,
            SCALE.data_ptr(),
            net.hidden,
            net.nvec,
            [p.numel() for p in self._parameters],
            self._slots,
            spin_seconds(self._slots - 1),
            config.minibatch_size,
        )

    def _networks(self, tensors: list[tuple[int, int, int]], rollout_value: Tensor) -> Any:
        b, own = self._buffers, self._own
        own.tensors(tensors)
        arrays = (b.obs[self._leaf], b.action, b.logprob, rollout_value, b.advantage, b.returns, b.mask)
        own.arrays(*(array.data_ptr() for array in arrays))
        return own
