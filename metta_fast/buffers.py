"""Every array of a rollout, allocated once on the learner's device, time-major.

Place in the flow: rollout writes rows, advantage fills `advantage` and `returns`, the learner reads segments.
With T = horizon, N = agents, W = action width, S = horizon / bptt_horizon segments, H = the core's state size:

    obs         {leaf: [T+1, N, *shape]}  the environment's dtype; row T is the next epoch's row 0
    mask        [T+1, N] bool      False: the row takes no part in anything
    reset       [T+1, N] bool      first row of an episode: the core's state is zeroed before it
    action      [T, N, W] int32 (discrete) or float32 (box)
    logprob     [T, N] float32     log-probability under the rollout's policy
    value       [T+1, N] float32   V(obs); row T has only a value
    reward      [T, N] float32     belongs to action[t]
    terminal    [T, N] bool        belongs to action[t]
    truncation  [T, N] bool        belongs to action[t]
    ratio       [T, N] float32     new/old policy ratio as last written by the learner (1 after a rollout)
    advantage   [T, N] float32
    returns     [T, N] float32
    state       [S, layers, N, H]  the core's state at the start of each segment, before a reset there
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metta_fast.spec import EnvSpec

DEBUG_MAGIC = 123.0
"""Debug mode fills float arrays with this value, so that a row nobody wrote is seen."""


@dataclass
class Buffers:
    """See the module's docstring for shapes."""

    horizon: int
    bptt_horizon: int
    num_agents: int
    obs: dict[str, Tensor]
    mask: Tensor
    reset: Tensor
    action: Tensor
    logprob: Tensor
    value: Tensor
    reward: Tensor
    terminal: Tensor
    truncation: Tensor
    ratio: Tensor
    advantage: Tensor
    returns: Tensor
    state: Tensor

    @property
    def num_segments(self) -> int:
        """Segments of bptt_horizon rows in the buffer, over all agents."""
        return self.num_agents * (self.horizon // self.bptt_horizon)

    @classmethod
    def allocate(cls, spec: EnvSpec, *, horizon: int, bptt_horizon: int, state_shape: tuple[int, int],
                 device: torch.device, debug: bool = False) -> Buffers:
        """All arrays, zeroed (debug: floats filled with DEBUG_MAGIC).

        Args:
            state_shape: (layers, size) of the policy's core; (0, 0) without one.
        """
        if horizon % bptt_horizon:
            raise ValueError(f"horizon {horizon} is not a whole multiple of bptt_horizon {bptt_horizon}")
        n = spec.num_agents
        fill = DEBUG_MAGIC if debug else 0.0

        def array(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.full(shape, fill if dtype.is_floating_point else 0, dtype=dtype, device=device)

        layers, size = state_shape
        return cls(
            horizon=horizon, bptt_horizon=bptt_horizon, num_agents=n,
            obs={name: array(horizon + 1, n, *leaf.shape, dtype=getattr(torch, leaf.dtype))
                 for name, leaf in spec.obs.items()},
            mask=array(horizon + 1, n, dtype=torch.bool), reset=array(horizon + 1, n, dtype=torch.bool),
            action=array(horizon, n, spec.action.width, dtype=getattr(torch, spec.action.dtype)),
            logprob=array(horizon, n), value=array(horizon + 1, n), reward=array(horizon, n),
            terminal=array(horizon, n, dtype=torch.bool), truncation=array(horizon, n, dtype=torch.bool),
            ratio=array(horizon, n), advantage=array(horizon, n), returns=array(horizon, n),
            state=array(horizon // bptt_horizon, layers, n, size))
