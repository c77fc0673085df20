"""A trained policy used by itself, without the run's environments or trainer.

policy = metta_fast.load_policy("runs/grid-1")      # or one of its checkpoints
policy.restart()                                    # before new episodes (not needed the first time)
actions = policy.act(obs)                           # [n, width]; memory goes on from call to call
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from metta_fast.errors import UserError
from metta_fast.evaluate import load_run
from metta_fast.play import PolicyPlayer
from metta_fast.spec import Array, EnvSpec

if TYPE_CHECKING:
    import torch

    from metta_fast.policy import Policy


def load_policy(
    path: str | PathLike[str], *, best: bool = False, deterministic: bool = False, seed: int = 0
) -> LoadedPolicy:
    """The policy of a run's newest checkpoint, or of one checkpoint.

    Args:
        path: a run's folder, a run's name in runs/, or one of a run's checkpoints.
        best: the run's checkpoint with the best score, not the newest.
        deterministic: `act` gives the most likely action, not a sample.
        seed: of the samples.

    Raises:
        UserError: nothing there, or a damaged checkpoint.
    """
    config, policy, device, _ = load_run(str(path), best=best)
    from metta_fast.envs import make_factory

    return LoadedPolicy(policy, make_factory(config.env).spec, device, deterministic=deterministic, seed=seed)


class LoadedPolicy:
    """A policy, its memory of the episodes that it is in, and what it takes and gives: see `spec`."""

    def __init__(
        self, policy: Policy, spec: EnvSpec, device: torch.device, *, deterministic: bool, seed: int
    ) -> None:
        self.policy, self.spec, self.device = policy, spec, device
        self._deterministic, self._seed = deterministic, seed
        self.restart()

    def restart(self) -> None:
        """Forget: new episodes begin, of any number of agents; samples are those from the start."""
        self._player: PolicyPlayer | None = None
        self._agents = 0

    def act(self, obs: Array | Mapping[str, Array], reset: Array | None = None) -> Array:
        """Actions [n, width] of n agents, in the environment's own numbers (`Discrete(n, start=k)`: k …).

        Args:
            obs: {leaf: [n, *shape]} in the dtypes of `spec.obs`, or the array of the only leaf.
            reset: [n] bool, agents whose episode begins with this observation. None: none since `restart`.

        Raises:
            UserError: an observation of another form, or of other agents than in the last call.
        """
        leaves = self._leaves(obs)
        n = len(next(iter(leaves.values())))
        if self._player is None:
            one_each = dataclasses.replace(self.spec, num_envs=n, agents_per_env=1)
            self._player = PolicyPlayer(
                self.policy, one_each, self.device, deterministic=self._deterministic, seed=self._seed
            )
            self._agents = n
        if n != self._agents:
            raise UserError(f"observations of {n} agents after {self._agents}: call restart() in between")
        begins = np.zeros(n, np.bool_) if reset is None else np.asarray(reset, np.bool_)
        if begins.shape != (n,):
            raise UserError(f"reset has shape {begins.shape}, expected ({n},): one for each agent")
        action = self._player.choose(leaves, begins)
        start = self.spec.action.start
        return action + np.array(start, action.dtype) if start else action

    def _leaves(self, obs: Array | Mapping[str, Array]) -> dict[str, Array]:
        wanted = self.spec.obs
        given = obs if isinstance(obs, Mapping) else dict.fromkeys(list(wanted)[:1], obs)
        if given.keys() != wanted.keys():
            raise UserError(f"observation has {sorted(given)}, expected {sorted(wanted)}")
        leaves = {name: np.ascontiguousarray(given[name]) for name in wanted}
        n = next(iter(leaves.values())).shape[:1]
        for name, leaf in wanted.items():
            array = leaves[name]
            if array.shape != (*n, *leaf.shape) or not n or array.dtype != leaf.dtype:
                raise UserError(
                    f"observation {name!r} is {array.dtype} {array.shape}, expected {leaf.dtype} "
                    f"(n, {', '.join(map(str, leaf.shape))}), n agents in all leaves"
                )
        return leaves
