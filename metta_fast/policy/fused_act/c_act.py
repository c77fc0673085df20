"""A rollout's step of a grid policy on the CPU in C (c_act.h): bytes and noise to actions, log-probabilities, values.

Place in the flow: rollout/c_rollout.py calls it for each row of a block.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metta_fast.policy.fused_act._c_act import Actor  # type: ignore[attr-defined]
from metta_fast.policy.fused_act.grid_net import grid_net
from metta_fast.policy.grid.sparse_layer import SCALE


class CpuAct:
    """Call `weights` before the first rows and whenever they have changed."""

    def __init__(self, policy: Any, threads: int, spin_s: float = 0.0) -> None:
        """policy: one for which grid_net.not_a_grid_net gives None. threads: the caller is one of them.
        spin_s: how long idle ones spin."""
        self._net = net = grid_net(policy)
        self.leaf = net.leaf
        self._actor = Actor(net.first.layout.index, SCALE.data_ptr(), net.hidden, net.nvec, threads, spin_s)

    def weights(self) -> None:
        """Take in the policy's weights as they are now."""
        self._actor.weights([p.data_ptr() for p in self._net.parameters()])

    def values(self, seen: int, obs: Tensor, value: Tensor) -> None:
        """As a call, of the values alone."""
        self._actor.act(len(value), seen, obs.data_ptr(), 0, 0, 0, 0, value.data_ptr())

    def __call__(
        self,
        seen: int,
        obs: Tensor,
        noise: Tensor,
        action: Tensor,
        given: int,
        logprob: Tensor,
        value: Tensor,
    ) -> None:
        """seen uint8 [n, …], noise float32 [n, W] → obs, the same, action int32 [n, W], logprob [n], value [n].

        All contiguous. seen, given: addresses; given int32 [n, W] gets the actions too.
        """
        arrays = (x.data_ptr() for x in (obs, noise, action))
        self._actor.act(len(value), seen, *arrays, given, logprob.data_ptr(), value.data_ptr())
