"""Checks an exported file's outputs against the policy's, on the environment's observations and on random ones.

A number may differ by TOLERANCE times the largest number in its output (at least 1), because the order of sums differs.
A discrete action may differ only if its logit is within twice that of the best one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.env import EnvFactory, EnvSpec, check_batches
from metta_fast.contracts.slab import new_rows
from metta_fast.export.formats import Function
from metta_fast.export.step import ACTION_MASK, Step, has_memory, output_names
from metta_fast.inference.players import RandomPlayer, close_batch
from metta_fast.policy import Policy
from metta_fast.policy.mixed_head import discrete_of

TOLERANCE = 1e-4
STEPS = 12
"""Number of environment steps."""
RANDOM_BATCHES = (1, 3, 8, 3)
"""Numbers of agents of the random observations: the axis of agents is free."""
SPREAD = 3.0
"""Standard deviation of random floating-point numbers."""

Batch = tuple[dict[str, Tensor], Tensor]
"""Observations {leaf: [n, *shape]}, with ACTION_MASK [n, P] where there are masks, and reset [n] bool."""


class Different(Exception):
    """Reports an output in which the file differs from the policy."""


@dataclass
class Report:
    """Holds the result of a comparison."""

    rows: int = 0
    largest: float = 0.0
    """Largest difference, in units of the largest number of its output (at least 1)."""
    random: bool = True
    """False: random observations were left out, because the policy does not accept every number."""
    reach: float = 1.0
    """The largest finite bound of continuous actions."""


def played(factory: EnvFactory, num_envs: int, wanted: EnvSpec, seed: int = 0) -> list[Batch]:
    """Plays num_envs environments at random from a reset on. Returns the observations' leaves in `wanted`."""
    check_batches(factory, "an export, which compares the file with the policy,")
    spec = factory.spec
    rows = new_rows(spec, num_envs * spec.agents_per_env)
    player = RandomPlayer(spec, seed)
    batch, found = factory.make_batch(0, num_envs, num_envs), []
    try:
        batch.bind(rows)
        batch.reset(seed)
        for _ in range(STEPS):
            obs = {name: torch.from_numpy(rows.obs[name].copy()) for name in wanted.obs}
            if spec.action_mask:
                obs[ACTION_MASK] = torch.from_numpy(rows.action_mask.copy())
            found.append((obs, torch.from_numpy(rows.reset.copy())))
            rows.action[...] = player.act(rows, batch)
            batch.step()
    finally:
        close_batch(batch)
    return found


def random_batches(spec: EnvSpec, seen: list[Batch], seed: int = 0) -> Iterator[Batch]:
    """Yields random observations: uniform bytes, normal floats; other integers are drawn from `seen`."""
    rng = np.random.default_rng(seed)
    for n in RANDOM_BATCHES:
        obs = {}
        for name, leaf in spec.obs.items():
            shape = (n, *leaf.shape)
            if leaf.dtype.startswith("float"):
                array = (rng.standard_normal(shape) * SPREAD).astype(leaf.dtype)
            elif leaf.dtype == "uint8":
                array = rng.integers(0, 256, shape, dtype=np.uint8)
            else:
                values = torch.cat([batch[0][name].flatten() for batch in seen]).numpy()
                array = rng.choice(values, shape)
            obs[name] = torch.from_numpy(array)
        if spec.action_mask:
            mask = rng.random((n, sum(spec.action.nvec))) < 0.5
            first = 0
            for choices in spec.action.nvec:
                mask[np.arange(n), first + rng.integers(0, choices, n)] = True
                first += choices
            obs[ACTION_MASK] = torch.from_numpy(mask)
        yield obs, torch.from_numpy(rng.random(n) < 0.3)


@torch.inference_mode()
def compare(run: Function, policy: Policy, spec: EnvSpec, seen: list[Batch]) -> Report:
    """Compares the loaded file with the policy.

    Args:
        seen: the result of `played`.

    Raises:
        Different: they disagree, or the file cannot be run.
    """
    pairs = zip(spec.action.low, spec.action.high, spec.action.bounded)
    bounds = [abs(bound) for low, high, bounded in pairs if bounded for bound in (low, high)]
    report = Report(reach=max([1.0, *bounds]))
    step = Step(policy, spec)
    state = policy.initial_state(len(seen[0][1]))
    for obs, reset in seen:
        state = _one(run, step, (obs, reset), state, report)
    for obs, reset in random_batches(spec, seen):
        layers, size = policy.state_shape
        state = torch.randn((layers, len(reset), size), generator=torch.Generator().manual_seed(len(reset)))
        try:
            step(*_inputs(policy, obs, state, reset))
        except (IndexError, RuntimeError, ValueError):  # an embedding's table, say, is smaller than a byte
            report.random = False
            break
        _one(run, step, (obs, reset), state, report)
    return report


def _inputs(policy: Policy, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> tuple[Tensor, ...]:
    return (*obs.values(), state, reset) if has_memory(policy) else tuple(obs.values())


def _one(run: Function, step: Step, batch: Batch, state: Tensor, report: Report) -> Tensor:
    """Compares one batch. Returns the policy's new state."""
    obs, reset = batch
    inputs = _inputs(step.policy, obs, state, reset)
    expected = step(*inputs)
    try:
        given = run(*inputs)
    except Exception as error:  # whatever the runtime raises of its own kinds
        raise Different(
            f"it cannot be run on {len(reset)} agents ({type(error).__name__}: {error})"
        ) from error
    params = expected[1]
    for name, right, got in list(zip(output_names(step.policy), expected, given))[1:]:
        _judge(name, _distance(right, got), report)
    right, got = expected[0], given[0]
    fits, heads = right.shape == got.shape and right.dtype == got.dtype, step.heads
    _judge("action", _worse(step, params, got[:, :heads]) / 2 if fits else float("inf"), report)
    _judge("action", _distance(right[:, heads:], got[:, heads:], report.reach), report)
    report.rows += len(reset)
    return expected[-1] if step.memory else state


def _distance(right: Tensor, got: Tensor, scale: float = 1.0) -> float:
    if right.shape != got.shape or right.dtype != got.dtype:
        return float("inf")
    if not right.numel():
        return 0.0
    finite = right[right.isfinite()].abs()
    scale = max(scale, float(finite.max()) if finite.numel() else 0.0)
    apart = torch.where((right == got) | (right.isnan() & got.isnan()), 0.0, (right - got).abs())
    return float(apart.max()) / scale


def _worse(step: Step, params: Tensor, action: Tensor) -> float:
    """Returns the difference between the best logits and those of `action`."""
    start = torch.tensor(step.start or [0] * action.shape[-1])
    discrete = discrete_of(step.policy.head)
    if discrete is None:
        return 0.0
    params = params[..., : discrete.num_params]
    scale = max(1.0, float(params[params.isfinite()].abs().max()) if params.isfinite().any() else 1.0)
    gaps = [0.0]
    for head, logits in enumerate(params.split(discrete.nvec, -1)):
        chosen = (action[:, head].long() - start[head]).unsqueeze(-1)
        if bool(((chosen < 0) | (chosen >= logits.shape[-1])).any()):
            return float("inf")
        gap = logits.amax(-1) - logits.gather(-1, chosen)[:, 0]
        gaps.append(float(gap.nan_to_num(0.0).max()))
    return max(gaps) / scale


def _judge(name: str, distance: float, report: Report) -> None:
    if not distance <= TOLERANCE:
        raise Different(f"{name} differs by {distance:.3g} of its size, allowed is {TOLERANCE:g}")
    report.largest = max(report.largest, distance)
