"""Every array of a rollout, allocated once, time-major.

Place in the flow: the rollout writes rows, advantage fills `advantage` and `returns`, the learner reads
segments. With T = horizon, N = agents, W = action width, S = horizon / bptt_horizon segments, H = the size of
the core's state:

    obs         {leaf: [T+1, N, *shape]}  the environment's dtype; row T is the next epoch's row 0
    mask        [T+1, N] bool      False: the row takes no part in anything
    reset       [T+1, N] bool      first row of an episode: the core's state is zeroed before it
    action      [T, N, W] int32 (discrete) or float32 (box)
    logprob     [T, N] float32     log-probability under the rollout's policy
    value       [T+1, N] float32   V(obs); row T has only a value
    reward      [T, N] float32     belongs to action[t]
    terminal    [T, N] bool        belongs to action[t]
    truncation  [T, N] bool        belongs to action[t]
    stats       [T, N, len(spec.stats)] float32  of the episode that action[t] ended; else unused
    ratio       [T, N] float32     new/old policy ratio as last written by the learner (1 after a rollout)
    advantage   [T, N] float32
    returns     [T, N] float32
    state       [S, layers, N, H]  the core's state at the start of each segment, before a reset there

They lie on the learner's device, or in pinned host memory with trainer.cpu_offload.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metta_fast.contracts.env import EnvSpec

DEBUG_MAGIC = -1.25 * 2.0**100
"""Debug mode fills float arrays with this value, which no environment means: a row nobody wrote is seen."""

CHECKED = ("logprob", "value", "reward", "advantage", "returns")
"""Arrays that are wholly written every epoch."""


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
    stats: Tensor
    ratio: Tensor
    advantage: Tensor
    returns: Tensor
    state: Tensor
    bootstrap: Tensor | None = None

    @property
    def num_segments(self) -> int:
        """Segments of bptt_horizon rows in the buffer, over all agents."""
        return self.num_agents * (self.horizon // self.bptt_horizon)

    @property
    def device(self) -> torch.device:
        """Where the arrays lie."""
        return self.value.device

    @classmethod
    def allocate(
        cls,
        spec: EnvSpec,
        *,
        horizon: int,
        bptt_horizon: int,
        state_shape: tuple[int, int],
        device: torch.device,
        debug: bool = False,
        pinned: bool = False,
    ) -> Buffers:
        """All arrays, zeroed and `ratio` 1 (debug: floats filled with DEBUG_MAGIC).

        Args:
            state_shape: (layers, size) of the policy's core; (0, 0) without one.
            pinned: host memory that a GPU can copy from and to by itself; `device` is the CPU.
        """
        if horizon % bptt_horizon:
            raise ValueError(f"horizon {horizon} is not a whole multiple of bptt_horizon {bptt_horizon}")
        n = spec.num_agents

        def array(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pinned)

        layers, size = state_shape
        buffers = cls(
            horizon=horizon,
            bptt_horizon=bptt_horizon,
            num_agents=n,
            obs={
                name: array(horizon + 1, n, *leaf.shape, dtype=getattr(torch, leaf.dtype))
                for name, leaf in spec.obs.items()
            },
            mask=array(horizon + 1, n, dtype=torch.bool),
            reset=array(horizon + 1, n, dtype=torch.bool),
            action=array(horizon, n, spec.action.width, dtype=getattr(torch, spec.action.dtype)),
            logprob=array(horizon, n),
            value=array(horizon + 1, n),
            reward=array(horizon, n),
            terminal=array(horizon, n, dtype=torch.bool),
            truncation=array(horizon, n, dtype=torch.bool),
            stats=array(horizon, n, len(spec.stats)),
            ratio=array(horizon, n).fill_(1),
            advantage=array(horizon, n),
            returns=array(horizon, n),
            state=array(horizon // bptt_horizon, layers, n, size),
        )
        if debug:
            buffers.fill_magic()
        return buffers

    def fill_magic(self) -> None:
        """Debug mode: forget everything, so that a row nobody writes afterwards is found by `unwritten`."""
        for array in [*self.obs.values(), self.action, *(getattr(self, name) for name in CHECKED)]:
            if array.dtype.is_floating_point:
                array.fill_(DEBUG_MAGIC)

    def unwritten(self) -> str | None:
        """The name of an array with a row that nobody wrote since `fill_magic`, or None."""
        floats = {name: getattr(self, name) for name in CHECKED} | {
            f"obs {k}": v for k, v in self.obs.items()
        }
        return next(
            (
                name
                for name, array in floats.items()
                if array.dtype.is_floating_point and bool((array == DEBUG_MAGIC).any())
            ),
            None,
        )
