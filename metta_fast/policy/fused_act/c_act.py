"""Computes a grid policy's rollout step in C (c_act.h): bytes and noise to actions, log-probabilities, values.

Place in the flow: rollout/c_rollout.py calls it for each row of a block.
"""

from __future__ import annotations

from torch import Tensor, nn

from metta_fast.policy.fused_act._c_act import Actor  # type: ignore[attr-defined]
from metta_fast.policy.fused_act.grid_net import grid_net
from metta_fast.policy.grid.sparse_layer import SCALE
from metta_fast.policy.plan import Plan, plan_of


class CpuAct:
    """Computes rows. Call `weights` before the first row and whenever the weights have changed."""

    def __init__(self, policy: nn.Module, threads: int, spin_s: float = 0.0) -> None:
        """policy: `applies.not_in_c` must return None for its plan. threads: number of threads, with the caller.
        spin_s: seconds that idle threads spin."""
        plan = plan_of(policy)
        assert isinstance(plan, Plan), plan
        self._net = net = grid_net(plan)
        self.leaf = net.leaf
        self._actor = Actor(net.first.layout.index, SCALE.data_ptr(), net.hidden, net.nvec, threads, spin_s)

    def weights(self) -> None:
        """Copies the policy's current weights."""
        self._actor.weights([p.data_ptr() for p in self._net.parameters()])

    def values(self, seen: int, obs: Tensor, value: Tensor) -> None:
        """Computes only the values of a call."""
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
        """Acts: seen uint8 [n, …], noise float32 [n, W] → obs (a copy of seen), action int32 [n, W], logprob [n],
        value [n].

        All contiguous. seen, given: addresses; the actions are also written to given, int32 [n, W].
        """
        arrays = (x.data_ptr() for x in (obs, noise, action))
        self._actor.act(len(value), seen, *arrays, given, logprob.data_ptr(), value.data_ptr())
