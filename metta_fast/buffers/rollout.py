"""Allocates every array of a rollout once, time-major.

Place in the flow: the rollout writes rows, advantage fills `advantage` and `returns`, the learner reads
segments. With T = horizon, N = agents, W = action width, S = horizon / bptt_horizon segments, H = the size of
the core's state, P = choices of all heads together:

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
    state       [S, layers, N, H]  the core's state at the start of each segment, before a reset there; with `frames`
                                   without the frames: `state_at` finds them among the rows

Only where an environment needs them, else None:

    bootstrap   [T, N] float32     same-step resets with final observations: V(final observation) where the action was
                                   cut, 0 elsewhere
    final_obs   {leaf: [N, *shape]}  likewise: the final observations of the row that was stepped last; entries of
                                   agents whose episode did not end there have no meaning
    action_mask [T+1, N, P] bool   environments with action masks: False forbids the choice
    with_past   {leaf: [K-1+T+1, N, *shape]}  policy.frame_stack: the frames before row 0, then obs in the same memory
    env_action  [N, W] float32     box actions of environments on the learner's device: action[t] as they get it,
                                   clipped or squashed into the bounds

They are on the learner's device, or in pinned host memory with trainer.cpu_offload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from metta_fast.buffers.act_row import ActRow
from metta_fast.buffers.frames import Frames
from metta_fast.contracts.env import EnvSpec

DEBUG_MAGIC = -1.25 * 2.0**100
"""Debug mode fills float arrays with this value, which no environment gives, so that unwritten rows are found."""

CHECKED = ("logprob", "value", "reward", "advantage", "returns")
"""Arrays of which every entry is written in each epoch."""


@dataclass
class Buffers:
    """Holds a rollout. See the module's docstring for shapes."""

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
    final_obs: dict[str, Tensor] | None = None
    action_mask: Tensor | None = None
    env_action: Tensor | None = None
    frames: Frames | None = None
    """The frames that a state has beside the core's; None: it has the core's alone."""
    with_past: dict[str, Tensor] = field(default_factory=dict)

    @property
    def num_segments(self) -> int:
        """Number of segments of bptt_horizon rows, over all agents."""
        return self.num_agents * (self.horizon // self.bptt_horizon)

    @property
    def device(self) -> torch.device:
        """Device of the arrays."""
        return self.value.device

    def given_actions(self, t: int) -> Tensor:
        """Returns action[t] [N, W] as an environment on the learner's device gets it, for its `step_row(t)`."""
        return self.action[t] if self.env_action is None else self.env_action

    def leave_out(self, start: int) -> None:
        """Masks rows start … T−1, which were not collected, and takes rewards and ends of an earlier rollout away."""
        if start < self.horizon:
            for array in (self.mask, self.reward, self.terminal, self.truncation):
                array[start : self.horizon] = 0

    def keep_state(self, t: int, state: Tensor, start: int = 0, stop: int | None = None) -> None:
        """Stores the state [layers, n, size] of agents start … stop before row t, where a segment begins."""
        if t % self.bptt_horizon or not state.numel():
            return
        if self.frames is not None:
            state, past = self.frames.split(state)
            for name, leaf in self.with_past.items() if t == 0 else ():
                leaf[: self.frames.count - 1, start:stop].copy_(past[name], non_blocking=True)
        if state.numel():
            self.state[t // self.bptt_horizon, :, start:stop].copy_(state, non_blocking=True)

    def first_state(self, agents: slice = slice(None)) -> Tensor:
        """Returns the state [layers, n, size] before row 0."""
        core = self.state[0, :, agents].contiguous()
        if self.frames is None:
            return core
        before = self.frames.count - 1
        return self.frames.join(core, {name: leaf[:before, agents] for name, leaf in self.with_past.items()})

    def state_at(self, segments: Tensor) -> Tensor:
        """Returns the state [layers, B, size] at the start of segments [B] (s · num_agents + n)."""
        segment, agent = segments // self.num_agents, segments % self.num_agents
        layers, size = self.state.shape[1], self.state.shape[3]
        if layers:
            core = self.state[segment, :, agent].transpose(0, 1).contiguous()
        else:
            core = self.state.new_zeros(0, len(segments), size)
        if self.frames is None:
            return core
        before = self.frames.count - 1
        ages = torch.arange(before, device=segments.device).unsqueeze(1) - before
        rows = (segment * self.bptt_horizon + ages).flatten()  # from -before on
        agents = agent.expand(before, -1).flatten()
        shape = before, len(segments)
        frames = {
            name: leaf.flatten(0, 1)
            .index_select(0, (rows + before) * self.num_agents + agents)
            .unflatten(0, shape)
            for name, leaf in self.with_past.items()
        }
        reset = self.reset[rows.clamp(min=0), agents] & (rows >= 0)
        return self.frames.from_rows(core, frames, reset.unflatten(0, shape))

    def act_row(self, t: int, state: Tensor, noise: Tensor) -> ActRow:
        """Returns row t < horizon for the policy's step. state: [layers, N, H]. noise: [T, N, W]."""
        row = slice(t, t + 1)
        return ActRow(
            {name: leaf[row] for name, leaf in self.obs.items()},
            state,
            self.reset[row],
            noise[row],
            self.action[row],
            self.logprob[row],
            self.value[row],
            None if self.action_mask is None else self.action_mask[row],
        )

    @classmethod
    def allocate(
        cls,
        spec: EnvSpec,
        *,
        num_agents: int,
        horizon: int,
        bptt_horizon: int,
        state_shape: tuple[int, int],
        device: torch.device,
        frames: Frames | None = None,
        debug: bool = False,
        pinned: bool = False,
    ) -> Buffers:
        """Allocates all arrays, zeroed and `ratio` 1 (debug: floats filled with DEBUG_MAGIC).

        Args:
            state_shape: (layers, size) of the policy's state; (0, 0) without one.
            frames: what a policy's state has beside its core's (policy.frame_stack); None: nothing.
            pinned: page-locked host memory, which a GPU copies from and to by itself; `device` is the CPU.

        Raises:
            ValueError: horizon is not a multiple of bptt_horizon.
        """
        if horizon % bptt_horizon:
            raise ValueError(f"horizon {horizon} is not a whole multiple of bptt_horizon {bptt_horizon}")
        n = num_agents

        make = partial(torch.zeros, device=device, pin_memory=pinned)
        flag, final = torch.bool, spec.autoreset == "same_step" and spec.has_final_obs
        layers, size = state_shape if frames is None else frames.core
        before = 0 if frames is None else frames.count - 1
        whole = _leaves(spec, make, before + horizon + 1, n)
        buffers = cls(
            horizon=horizon,
            bptt_horizon=bptt_horizon,
            num_agents=n,
            obs={name: leaf[before:] for name, leaf in whole.items()},
            mask=make(horizon + 1, n, dtype=flag),
            reset=make(horizon + 1, n, dtype=flag),
            action=make(horizon, n, spec.action.width, dtype=getattr(torch, spec.action.dtype)),
            logprob=make(horizon, n),
            value=make(horizon + 1, n),
            reward=make(horizon, n),
            terminal=make(horizon, n, dtype=flag),
            truncation=make(horizon, n, dtype=flag),
            stats=make(horizon, n, len(spec.stats)),
            ratio=make(horizon, n).fill_(1),
            advantage=make(horizon, n),
            returns=make(horizon, n),
            state=make(horizon // bptt_horizon, layers, n, size),
            bootstrap=make(horizon, n) if final else None,
            final_obs=_leaves(spec, make, n) if final else None,
            action_mask=make(horizon + 1, n, sum(spec.action.nvec), dtype=flag) if spec.action_mask else None,
            frames=frames,
            with_past={} if frames is None else whole,
        )
        if debug:
            buffers.fill_magic()
        return buffers

    def fill_magic(self) -> None:
        """Fill float arrays with DEBUG_MAGIC, so that `unwritten` finds a row that is not written afterwards."""
        for array in [*self.obs.values(), self.action, *(getattr(self, name) for name in CHECKED)]:
            if array.dtype.is_floating_point:
                array.fill_(DEBUG_MAGIC)

    def unwritten(self) -> str | None:
        """Returns the name of an array with a row that was not written since `fill_magic`, or None."""
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


def _leaves(spec: EnvSpec, make: Callable[..., Tensor], *lead: int) -> dict[str, Tensor]:
    """Returns an array for every leaf of an observation, with `lead` as the first axes."""
    return {
        name: make(*lead, *leaf.shape, dtype=getattr(torch, leaf.dtype)) for name, leaf in spec.obs.items()
    }
