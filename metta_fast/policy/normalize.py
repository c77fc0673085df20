"""Normalises observations to mean 0 and standard deviation 1 before the policy reads them (policy.normalize_obs).

    normalize(policy, spec)                 # its forward now reads normalised observations
    policy.normalizer.take(buffers)         # at an epoch's end: adds the rollout to the moments
    policy.normalizer.restart()             # forgets them, but goes on normalising by them until the next take

Only floating-point leaves are normalised: bytes of a grid and other integers are symbols. The moments are those of the
unmasked rows of all rollouts so far (Welford, merged by Chan et al. 1979). They change between epochs only: the learner
reads the same numbers as the rollout, whatever the blocks and workers, and an evaluation changes nothing. They are
buffers of the policy's module, so checkpoints, `load_policy` and `metta-fast eval` have them. Before the first rollout
is added, observations are unchanged: an algorithm begins with a rollout that gives only moments.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.distributed.group import current
from metta_fast.distributed.moments import Moments, merged, over_processes

LIMIT = 10.0
"""Normalised numbers are clipped to ±LIMIT: one that has been constant so far may later take any value."""
EPSILON = 1e-8
"""Added to the variance."""
CHUNK = 1 << 22
"""Numbers in float64 at a time."""


class Normalizer(nn.Module):
    """Running moments of F numbers: all entries of the floating-point leaves side by side.

    Raises:
        UserError: the observation has no floating-point leaf.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.parts: dict[str, tuple[int, int]] = {}
        """Leaf → (first, last + 1) of its numbers among the F."""
        end = 0
        for name, leaf in spec.obs.items():
            if leaf.dtype.startswith("float"):
                self.parts[name] = end, end + prod(leaf.shape)
                end = self.parts[name][1]
        if not self.parts:
            given = ", ".join(f"{name} {list(leaf.shape)} {leaf.dtype}" for name, leaf in spec.obs.items())
            raise UserError(
                f"policy.normalize_obs=true, but {spec.name} gives no floating-point observation ({given}); "
                "leave it out"
            )
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(end, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(end, dtype=torch.float64))  # sums of squared deviations
        self.register_buffer("shift", torch.zeros(end))
        self.register_buffer("scale", torch.ones(end))

    def forward(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns {leaf: [T, B, *shape]}: floating-point leaves normalised, in float32; others unchanged."""
        return {name: self._leaf(name, leaf) if name in self.parts else leaf for name, leaf in obs.items()}

    def before_forward(self, policy: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments of the policy's forward, normalised; a tensor is the actor's only leaf (network.py)."""
        obs, *others = arguments
        if isinstance(obs, Tensor):
            obs = {policy.actor_leaves[0]: obs}  # type: ignore[index]
        return (self(obs), *others)

    def _leaf(self, name: str, leaf: Tensor) -> Tensor:
        part, shape = slice(*self.parts[name]), leaf.shape[2:]
        centred = leaf.float() - self.shift[part].view(shape)
        return (centred * self.scale[part].view(shape)).clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def restart(self) -> None:
        """Forgets the moments: the next `take` begins them."""
        for own in (self.count, self.mean, self.squares):
            own.zero_()

    @torch.no_grad()
    def take(self, buffers: Buffers) -> None:
        """Adds a rollout's unmasked rows to the moments, without waiting; ignores numbers that are not finite."""
        horizon = buffers.horizon
        rows = max(1, CHUNK // (len(self.mean) * buffers.num_agents))
        running = self.count, self.mean, self.squares
        several = current().world > 1
        moments: Moments = tuple(map(torch.zeros_like, running)) if several else running  # type: ignore[assignment]
        for t in range(0, horizon, rows):
            chunk = slice(t, min(t + rows, horizon))
            leaves = [buffers.obs[name][chunk].flatten(2) for name in self.parts]
            x = torch.cat([leaf.to(self.mean.device, torch.float64) for leaf in leaves], -1)
            moments = _merged(moments, x, buffers.mask[chunk].to(x.device).unsqueeze(-1))
        if several:
            moments = merged(running, over_processes(moments, self.mean, current()))
        count, mean, squares = moments
        good = mean.isfinite().all() & squares.isfinite().all()
        for own, new in ((self.count, count), (self.mean, mean), (self.squares, squares)):
            own.copy_(torch.where(good, new, own))
        self.shift.copy_(self.mean)
        self.scale.copy_(
            torch.where(self.count > 0, (self.squares / self.count.clamp(min=1) + EPSILON).rsqrt(), 1.0)
        )


def _merged(moments: Moments, x: Tensor, mask: Tensor) -> Moments:
    """Returns (count, mean, squares) with the rows of x [T, N, F] where mask [T, N, 1] is set."""
    new = mask.sum()
    new_mean = torch.where(mask, x, 0.0).sum((0, 1)) / new.clamp(min=1)
    new_squares = torch.where(mask, x - new_mean, 0.0).square().sum((0, 1))
    return merged(moments, (new, new_mean, new_squares))


def normalize(policy: nn.Module, spec: EnvSpec) -> None:
    """Makes `policy`, of any class, read normalised observations.

    Raises:
        UserError: the observation has no floating-point leaf.
    """
    policy.normalizer = normalizer = Normalizer(spec)
    policy.register_forward_pre_hook(normalizer.before_forward)
