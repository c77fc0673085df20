"""Keeps the newest rows of all agents on the learner's device, for algorithms that learn from old transitions.

    rollout's Buffers ─► add ─► ring of rows [C, N, …] ─► sample places ─► gather: transitions of n steps

Rows are stored once, as a rollout has them (buffers/rollout.py): the next observation of a row is that of the row below
it, also at an episode's end, where that row (mask=False) holds the true final observation. Images keep their bytes, and
a stack of frames is found among the rows before (policy.frame_stack). With C places, N agents, W the action's width:

    obs          {leaf: [C, N, *shape]}   the environment's dtype
    mask, reset  [C, N] bool              mask=False: the row was not acted on, and is not sampled
    action       [C, N, W]                as the rollout stores it
    reward       [C, N] float32           as the environment gave it
    terminal, truncation  [C, N] bool
    action_mask  [C, N, P] bool           environments with action masks, else None

Row number r, counted from the run's start, is in place r mod C. `added` rows are complete; the row after them is open:
its observation is known, its action is not. C is larger than the rows that are sampled by one epoch and one row, so
that the rows of the last boundary are all there until the next (replay_files.py saves them).

A transition of n steps (Sutton 1988; Hessel et al. 2018, arXiv 1710.02298):

    R = Σ_{k<m} γ^k r[t+k]     target = R + γ^m · (1 − terminal[t+m−1]) · V(obs[t+m])

m ≤ n is the number of rows up to the episode's end, the next row that was not acted on, or the newest row. Where
environments reset in the same step, the row below a truncation is another episode's: it ends the window before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metta_fast.buffers.frames import Frames
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvSpec

FIELDS = ("mask", "reset", "action", "reward", "terminal", "truncation")
OPEN = ("mask", "reset")
"""Fields of the open row, beside its observation and action mask."""


@dataclass
class Transitions:
    """B transitions. Leading axes of observations are [1, B], as a policy reads them."""

    obs: dict[str, Tensor]
    state: Tensor
    """[layers, B, size]: the policy's state before each row (its frames, or nothing)."""
    reset: Tensor
    """[1, B] bool."""
    action: Tensor
    """[B, W]."""
    reward: Tensor
    """[B] float32: R."""
    discount: Tensor
    """[B] float32: γ^m, 0 after a terminal."""
    weight: Tensor
    """[B] float32: 1, or 0 for a place that holds no transition."""
    next_obs: dict[str, Tensor]
    next_state: Tensor
    next_reset: Tensor
    action_mask: Tensor | None = None
    """[B, P] bool: legal choices of the row."""
    next_action_mask: Tensor | None = None


class Replay:
    """A ring of rows. See the module's docstring for shapes."""

    def __init__(
        self,
        spec: EnvSpec,
        *,
        num_agents: int,
        rows: int,
        slack: int,
        gamma: float,
        n_step: int,
        device: torch.device,
        frames: Frames | None = None,
    ) -> None:
        """Allocates all arrays.

        Args:
            rows: of each agent that are sampled, the newest.
            slack: most rows that one `add` brings.
            frames: what a policy's state has (policy.frame_stack); None: nothing.
        """
        self.spec, self.num_agents, self.rows, self.frames = spec, num_agents, rows, frames
        self.gamma, self.n_step, self.device = gamma, n_step, device
        self.past = 0 if frames is None else frames.count - 1
        """Rows before a row that its state is made of."""
        self.places = rows + self.past + slack + 1
        lead = (self.places, num_agents)

        def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*lead, *shape, dtype=dtype, device=device)

        self.obs = {
            name: make(*leaf.shape, dtype=getattr(torch, leaf.dtype)) for name, leaf in spec.obs.items()
        }
        self.mask, self.reset = make(dtype=torch.bool), make(dtype=torch.bool)
        self.action = make(spec.action.width, dtype=getattr(torch, spec.action.dtype))
        self.reward = make()
        self.terminal, self.truncation = make(dtype=torch.bool), make(dtype=torch.bool)
        self.action_mask = make(sum(spec.action.nvec), dtype=torch.bool) if spec.action_mask else None
        self._cuts = spec.autoreset == "same_step"
        self.added = 0
        """Complete rows since the run's start."""
        self.first = 0
        """The oldest row that is in memory; older ones are overwritten, or were not loaded."""
        self.is_open = False
        """Whether row `added` has an observation."""

    # ---- rows in ----

    def add(self, buffers: Buffers, rows: int) -> None:
        """Adds the first `rows` rows of a rollout, and the row below them as the open one."""
        places = (torch.arange(rows + 1, device=self.device) + self.added) % self.places
        for name, leaf in self.obs.items():
            leaf[places] = buffers.obs[name][: rows + 1].to(self.device)
        for name in (*OPEN, *(["action_mask"] if self.action_mask is not None else [])):
            getattr(self, name)[places] = getattr(buffers, name)[: rows + 1].to(self.device)
        for name in FIELDS:
            if name not in OPEN:
                getattr(self, name)[places[:-1]] = getattr(buffers, name)[:rows].to(self.device)
        self.added += rows
        self.first = max(self.first, self.added - self.rows - self.past)
        self.is_open = True

    def cut(self) -> None:
        """Ends all episodes before the open row, because the environments are reset. The open row stays as the last
        observation, which is not acted on."""
        if not self.is_open:
            return
        place = self.added % self.places
        for name in FIELDS:
            if name not in ("reset", "action"):
                getattr(self, name)[place] = 0
        if self.added > self.first:
            last = (self.added - 1) % self.places
            self.truncation[last] |= self.mask[last] & ~self.terminal[last]
        self.added += 1
        self.is_open = False

    def forget(self, added: int) -> None:
        """Drops all rows: the next ones are added as row `added` and on."""
        self.added = self.first = added
        self.is_open = False

    def position(self) -> dict[str, int]:
        """Returns where the ring is: what `rewind` takes."""
        return {"added": self.added, "first": self.first, "open": int(self.is_open)}

    def rewind(self, position: dict[str, int]) -> bool:
        """Returns to a boundary after which at most `slack` rows were added. Returns False if its rows are gone."""
        added, first = position["added"], position["first"]
        newer = self.added - added
        if not 0 <= newer <= self.places - self.rows - self.past - 1 or first < self.first - newer:
            return False
        self.added, self.first, self.is_open = added, first, bool(position["open"])
        return True

    # ---- transitions out ----

    @property
    def start(self) -> int:
        """The oldest row that is sampled."""
        oldest = self.first + self.past if self.first else 0
        return max(oldest, self.added - self.rows)

    @property
    def size(self) -> int:
        """The number of places that are sampled: rows · agents."""
        return max(self.added - self.start, 0) * self.num_agents

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws from the sampled rows of all agents, each alike.

        Returns:
            (place · N + agent, rows up to the newest at most n_step), both int64 of `shape`.
        """
        drawn = torch.randint(self.size, shape, generator=generator, device=self.device)
        row = drawn // self.num_agents + self.start
        left = (self.added - row).clamp(max=self.n_step)
        return row % self.places * self.num_agents + drawn % self.num_agents, left

    def gather(self, index: Tensor, left: Tensor) -> Transitions:
        """Returns the transitions that `sample` has drawn, [B] each. Does not wait for the device."""
        weight, reward, after, discount = self.window(index, left)
        before = self._states(index)
        masks = self.action_mask
        return Transitions(
            obs=self._obs(index),
            state=before,
            reset=self._flat(self.reset, index).unsqueeze(0),
            action=self._flat(self.action, index),
            reward=reward,
            discount=discount,
            weight=weight,
            next_obs=self._obs(after),
            next_state=self._states(after) if self.past else before,
            next_reset=self._flat(self.reset, after).unsqueeze(0),
            action_mask=None if masks is None else self._flat(masks, index),
            next_action_mask=None if masks is None else self._flat(masks, after),
        )

    def window(self, index: Tensor, left: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns (weight, reward, index of the next observation, discount) of transitions, [B] each."""
        weight = self._flat(self.mask, index)
        reward, after, discount, cut = self._window(index, left)
        if self._cuts:
            weight = weight & ~cut
        return weight.float(), reward, after, discount

    def _window(self, index: Tensor, left: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns (R, index of the row after the window, γ^m · (1 − terminal), whether no row is in it), [B] each."""
        total = self.places * self.num_agents
        if self.n_step == 1 and not self._cuts:  # the same in fewer operations
            reward, terminal = self._flat(self.reward, index), self._flat(self.terminal, index)
            mask = self._flat(self.mask, index)
            after = torch.where(mask, (index + self.num_agents) % total, index)
            return reward * mask, after, (1.0 - terminal.float()) * self.gamma, ~mask
        ones = torch.ones(index.shape, device=self.device)
        reward, discount, at = torch.zeros_like(ones), ones, index
        goes_on = torch.ones(index.shape, dtype=torch.bool, device=self.device)
        none = torch.zeros_like(goes_on)
        for k in range(self.n_step):
            live = goes_on & (left > k)
            if k:
                live = live & self._flat(self.mask, at)
            terminal, truncation = self._flat(self.terminal, at), self._flat(self.truncation, at)
            if self._cuts:
                lost = truncation & ~terminal
                none = none | (live & lost) if k == 0 else none
                live = live & ~lost
            reward = reward + torch.where(live, discount * self._flat(self.reward, at), 0.0)
            discount = torch.where(live, discount * (self.gamma * ~terminal), discount)
            at = torch.where(live, (at + self.num_agents) % total, at)
            goes_on = live & ~(terminal | truncation)
        return reward, at, discount, none

    def _flat(self, array: Tensor, index: Tensor) -> Tensor:
        return array.flatten(0, 1).index_select(0, index)

    def _obs(self, index: Tensor) -> dict[str, Tensor]:
        return {name: self._flat(leaf, index).unsqueeze(0) for name, leaf in self.obs.items()}

    def _states(self, index: Tensor) -> Tensor:
        """Returns the policy's states [layers, B, size] before rows: their frames."""
        if self.frames is None:
            return torch.zeros(0, len(index), 0, device=self.device)
        ages = torch.arange(self.past, device=self.device).unsqueeze(1) - self.past
        before = (index + ages * self.num_agents) % (self.places * self.num_agents)
        flat, shape = before.flatten(), (self.past, len(index))
        frames = {name: self._flat(leaf, flat).unflatten(0, shape) for name, leaf in self.obs.items()}
        reset = self._flat(self.reset, flat).unflatten(0, shape)
        return self.frames.from_rows(torch.zeros(0, len(index), 0, device=self.device), frames, reset)
