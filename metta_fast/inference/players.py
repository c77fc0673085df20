"""Plays whole episodes without learning; every evaluation uses it.

    episodes = play(factory, player, 256, seed=EVAL_SEED_BIT | 3)  # an episode in each of 256 environments
    episodes.means()                                               # {"return": …, "length": …, "hearts": …}

A player returns actions for rows. `PolicyPlayer` uses a trained policy; `RandomPlayer` chooses uniformly. The caller
steps all environments together in one batch. Environment i depends on (seed, i) only, so different players see the
same maps.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from metta_fast.contracts.env import (
    Array,
    EnvBatch,
    EnvError,
    EnvFactory,
    EnvSpec,
    InfoBatch,
    NotingBatch,
    Rows,
    check_batches,
)
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.player import Player, check_legal, uniform
from metta_fast.contracts.slab import new_rows

if TYPE_CHECKING:
    import torch

    from metta_fast.policy import Policy

LOG = logging.getLogger("metta_fast.inference.players")
PATIENCE = 10
"""Multiple of the known time limit after which an episode is cut, for environments that never end."""


@dataclass(frozen=True)
class Episodes:
    """Holds the results of one episode of each agent."""

    agents_per_env: int
    returns: Array
    """[n] float64: sum of rewards; NaN for an agent that its environment's episode did not have."""
    lengths: Array
    """[n] int64: actions taken; 0 for such an agent."""
    stats: dict[str, Array]
    """{name: [n] float64}: the environment's statistics at the episode's end."""
    unfinished: int
    """Agents whose episode was cut by PATIENCE; their stats are NaN."""

    def values(self) -> dict[str, Array]:
        """Returns all results by name: return, length, and each statistic."""
        lengths = np.where(np.isnan(self.returns) & (self.lengths == 0), np.nan, self.lengths)
        return {"return": self.returns, "length": lengths, **self.stats}

    def means(self) -> dict[str, float]:
        """Returns each result's mean over the agents that have it (NaN: none has it)."""
        return {name: _mean(values) for name, values in self.values().items()}

    def error(self, name: str) -> float:
        """Returns the standard error of a result's mean. Environments are independent; agents of one environment are
        not."""
        by_env = self.values()[name].reshape(-1, self.agents_per_env)
        each = np.array([_mean(agents) for agents in by_env])
        each = each[~np.isnan(each)]
        return float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.nan


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def play(
    factory: EnvFactory,
    player: Player,
    num_envs: int,
    *,
    seed: int,
    first_env: int = 0,
    max_steps: int = 1000,
    watch: Callable[[Rows, EnvBatch], None] | None = None,
    check: Callable[[], None] | None = None,
) -> Episodes:
    """Plays one episode in each of the environments first_env … first_env+num_envs-1.

    Args:
        seed: the environments' seed, 0 … 2^64−1; training seeds never have EVAL_SEED_BIT set.
        max_steps: the time limit to assume if the environment has none of its own.
        watch: called with the rows and the batch after the reset and after each step (episodes/record.py).
        check: called after each step; what it raises ends the episodes, and the environments are closed.
    """
    check_batches(factory, "an evaluation or replay")
    spec = factory.spec
    n = num_envs * spec.agents_per_env
    rows = new_rows(spec, n)
    returns, lengths, alive = np.zeros(n), np.zeros(n, np.int64), np.ones(n, np.bool_)
    stats = np.full((n, len(spec.stats)), np.nan)
    found: dict[str, Array] = {}
    batch = factory.make_batch(first_env, num_envs, first_env + num_envs)
    try:
        batch.bind(rows)
        batch.reset(seed)
        if watch is not None:
            watch(rows, batch)
        for _ in range(PATIENCE * (spec.max_steps or max_steps)):
            rows.action[...] = player.act(rows, batch)
            acting = alive & rows.mask
            batch.step()
            if check is not None:
                check()
            if watch is not None:
                watch(rows, batch)
            returns[acting] += rows.reward[acting]
            lengths[acting] += 1
            ended = acting & (rows.terminal | rows.truncation)
            stats[ended] = rows.stats[ended]
            if spec.info_stats and ended.any():
                _take_info(batch, ended, spec.agents_per_env, found)
            alive &= ~ended
            if spec.agents_per_env > 1:
                over = ~rows.mask.reshape(num_envs, -1).any(axis=1)
                never = alive & (lengths == 0) & np.repeat(over, spec.agents_per_env)
                returns[never] = np.nan
                alive &= ~never
            if not alive.any():
                break
        for text in cast("NotingBatch", batch).notes().values() if spec.notes else ():
            LOG.warning("warning: %s", text)
    finally:
        close_batch(batch)
    named = {name: stats[:, i] for i, name in enumerate(spec.stats)} | found
    return Episodes(spec.agents_per_env, returns, lengths, named, int(alive.sum()))


def close_batch(batch: EnvBatch) -> None:
    """Closes environments after their last step. One that cannot be closed is reported: it changes no result."""
    try:
        batch.close()
    except EnvError as error:
        LOG.warning("warning: %s", error)


def _take_info(batch: EnvBatch, ended: Array, agents: int, found: dict[str, Array]) -> None:
    """Adds the statistics of these agents' episodes that the environment did not declare to `found`: {name: [n]}."""
    for env, values in cast("InfoBatch", batch).last_info().items():
        which = np.flatnonzero(ended[env * agents : (env + 1) * agents])
        for name, numbers in values.items():
            if len(which):
                column = found.setdefault(name, np.full(len(ended), np.nan))
                column[env * agents + which] = numbers[which]


class RandomPlayer:
    """Chooses uniformly among all legal actions."""

    def __init__(self, spec: EnvSpec, seed: int = 0) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        if self._spec.action_mask:
            check_legal(rows.action_mask, rows.mask, self._spec)
            return uniform(self._spec.action, len(rows.reward), self._rng, rows.action_mask)
        return uniform(self._spec.action, len(rows.reward), self._rng)


def sampled_or_likely(deterministic: bool) -> str:
    """Describes how a policy plays."""
    return "most likely actions" if deterministic else "sampled actions"


class PolicyPlayer:
    """Plays a policy in fp32 and keeps its core's state: sampled actions, or the most likely ones.

    The first call's rows set the number of agents.

    Args:
        deterministic: True: the most likely; False: samples; None: the most likely of continuous actions, samples of
            discrete and mixed ones.
        seed: seed of the samples.
    """

    deterministic: bool
    """Whether it takes the most likely actions."""

    def __init__(
        self,
        policy: Policy,
        spec: EnvSpec,
        device: torch.device,
        *,
        deterministic: bool | None,
        seed: int = 0,
    ) -> None:
        import torch

        from metta_fast.runtime.keyed_random import reseed

        self._policy, self._spec, self._device = policy, spec, device
        self.deterministic = spec.action.kind == "box" if deterministic is None else deterministic
        self._state: torch.Tensor | None = None
        self._value: torch.Tensor | None = None
        self._generator = reseed(torch.Generator(device), seed)

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        masks = rows.action_mask if self._spec.action_mask else None
        if masks is not None:
            check_legal(masks, rows.mask, self._spec)
        return self.choose(rows.obs, rows.reset, rows.mask, masks)

    def choose(
        self,
        obs: Mapping[str, Array],
        reset: Array,
        live: Array | None = None,
        action_mask: Array | None = None,
    ) -> Array:
        """Returns actions [n, width] for obs {leaf: [n, *shape]} and reset [n] bool, and keeps the core's new state.
        Only the actor's leaves are read.

        Args:
            live: [n] bool: rows whose action is used; None: all.
            action_mask: [n, P] bool: True for legal choices, of which every live row has one for each head; None: all
                are.

        Raises:
            UserError: all logits of an action head are -inf in a row whose action is used.
        """
        import torch

        draw = torch.rand if self._spec.action.kind == "discrete" else torch.randn
        with torch.inference_mode():
            leaves = {
                name: torch.from_numpy(obs[name])[None].to(self._device) for name in self._policy.actor_leaves
            }
            begins = torch.from_numpy(reset)[None].to(self._device)
            if self._state is None:
                self._state = self._policy.initial_state(len(reset), self._device)
            output = self._policy(leaves, self._state, begins)
            self._state, self._value = output.state, output.value[0]
            params = output.params
            if action_mask is not None:
                mask = torch.from_numpy(action_mask)[None].to(self._device)
                params = self._policy.head.masked(params, mask)  # type: ignore[union-attr]
            self._check_choice(params[0], live)
            if self.deterministic:
                action = self._policy.head.mode(params)
            else:
                shape = (1, len(reset), self._spec.action.width)
                noise = draw(shape, generator=self._generator, device=self._device)
                action, _ = self._policy.head.sample(params, noise)
            action = self._policy.head.to_env(action)
        return action[0].cpu().numpy()

    @property
    def value(self) -> Array | None:
        """[n] float32: the value of the last rows that actions were chosen for; None before the first."""
        return None if self._value is None else self._value.float().cpu().numpy()

    def _check_choice(self, params: torch.Tensor, live: Array | None) -> None:
        if self._spec.action.kind == "box":
            return
        none_left = self._policy.head.no_choice(params).cpu().numpy()  # type: ignore[union-attr]
        rows = np.flatnonzero(none_left if live is None else none_left & live)
        if len(rows):
            env, agent = divmod(int(rows[0]), self._spec.agents_per_env)
            raise UserError(
                f"the policy leaves no choice in environment {env} (agent {agent} of it): all logits of an action "
                "head are -inf; allow at least one action"
            )
