"""What every DeviceVector must do (contracts/device_vector.py)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.contracts.env import EnvSpec

Make = Callable[[int, int, int], DeviceVector]
"""(num_envs, first_env, total_envs) → vector."""
Rows = list[dict[str, Tensor]]
HORIZON = 5


def attached(vec: DeviceVector) -> Buffers:
    """Buffers for it, filled with what no environment gives."""
    buffers = Buffers.allocate(
        vec.spec,
        num_agents=vec.num_agents,
        horizon=HORIZON,
        bptt_horizon=HORIZON,
        state_shape=(0, 0),
        device=vec.device,
    )
    if vec.spec.action.kind == "box":
        buffers.env_action = torch.zeros_like(buffers.action[0])
    for array in (*buffers.obs.values(), buffers.reward, buffers.stats):
        array.fill_(77)
    vec.attach(buffers)
    return buffers


def tape_for(spec: EnvSpec, num_agents: int, length: int) -> Tensor:
    """[length, num_agents, W] actions, any legal or not."""
    random = torch.Generator().manual_seed(5)
    if spec.action.kind == "box":
        low, high = torch.tensor(spec.action.low), torch.tensor(spec.action.high)
        return low + (high - low) * torch.rand(length, num_agents, spec.action.width, generator=random)
    heads = [torch.randint(n, (length, num_agents), generator=random) for n in spec.action.nvec]
    return torch.stack(heads, -1).int()


def shown(b: Buffers, t: int) -> dict[str, Tensor]:
    """Copies of what row t shows of the environments."""
    arrays = {**b.obs, "mask": b.mask, "reset": b.reset}
    if b.action_mask is not None:
        arrays["action_mask"] = b.action_mask
    return {name: array[t].cpu().clone() for name, array in arrays.items()}


def play(vec: DeviceVector, b: Buffers, tape: Tensor, at: int = 0) -> Rows:
    """Step it along the tape; row i holds what a step wrote. at: steps since row T was written."""
    found = []
    for i, actions in enumerate(tape, start=at):
        t = i % b.horizon
        if t == 0:
            for rows in (
                *b.obs.values(),
                b.mask,
                b.reset,
                *([] if b.action_mask is None else [b.action_mask]),
            ):
                rows[0].copy_(rows[b.horizon])
        b.given_actions(t).copy_(actions)
        if vec.build_every and t % vec.build_every == 0:
            vec.build_ahead()
        vec.step_row(t)
        row = shown(b, t + 1)
        row |= {name: getattr(b, name)[t].cpu().clone() for name in ("reward", "terminal", "truncation")}
        row["done"] = row["terminal"] | row["truncation"]
        row["stats"] = b.stats[t].cpu()[row["done"]].clone()
        for name, leaf in (b.final_obs or {}).items():
            row[f"final {name}"] = leaf.cpu()[row["done"]].clone()
        found.append(row)
    return found


def assert_same(one: Rows, other: Rows) -> None:
    assert len(one) == len(other)
    for i, (a, b) in enumerate(zip(one, other)):
        assert a.keys() == b.keys()
        for name in a:
            assert torch.equal(a[name], b[name]), f"{name} of step {i}"


def check(make: Make, length: int = 4 * HORIZON, envs: int = 6) -> None:
    """All of the contract."""
    check_attach(make, envs)
    check_seeds(make, length, envs)
    check_ids(make, length, envs)
    check_ends(make, length, envs)
    check_states(make, length, envs)


def check_attach(make: Make, envs: int) -> None:
    vec, other = make(envs, 0, envs), make(envs + 1, 0, envs + 1)
    assert (vec.num_envs, vec.first_env, vec.total_envs) == (envs, 0, envs)
    assert vec.num_agents == envs * vec.spec.agents_per_env
    assert not vec.ready
    buffers = attached(vec)
    with pytest.raises(ValueError, match="buffers of"):
        other.attach(buffers)
    vec.async_reset(1)
    assert vec.ready
    first = shown(buffers, HORIZON)
    assert first["mask"].all()
    assert first["reset"].all()
    assert vec.notes() == []
    vec.close()
    vec.close()


def started(
    make: Make, envs: int, seed: int = 3, first: int = 0, total: int = 0
) -> tuple[DeviceVector, Buffers]:
    vec = make(envs, first, total or envs)
    buffers = attached(vec)
    vec.async_reset(seed)
    return vec, buffers


def check_seeds(make: Make, length: int, envs: int) -> None:
    """The same seed gives the same rows, in another vector and in the same one again; another seed others."""
    vec, b = started(make, envs, seed=2**64 - 3)
    tape = tape_for(vec.spec, vec.num_agents, length)
    first = shown(b, HORIZON)
    rows = play(vec, b, tape)
    again, c = started(make, envs, seed=2**64 - 3)
    assert_same([first], [shown(c, HORIZON)])
    assert_same(rows, play(again, c, tape))
    vec.async_reset(2**64 - 3)
    assert_same(rows, play(vec, b, tape))
    vec.async_reset(4)
    other = shown(b, HORIZON)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def check_ids(make: Make, length: int, envs: int) -> None:
    """What an environment does depends on the seed and its global id alone."""
    vec, b = started(make, envs)
    tape = tape_for(vec.spec, vec.num_agents, length)
    rows = play(vec, b, tape)
    cut = 2 * vec.spec.agents_per_env
    upper, c = started(make, envs - 2, first=2, total=envs)
    for whole, part in zip(rows, play(upper, c, tape[:, cut:])):
        for name in (*vec.spec.obs, "mask", "reset", "reward", "terminal", "truncation"):
            assert torch.equal(whole[name][cut:], part[name]), name


def check_ends(make: Make, length: int, envs: int) -> None:
    """Rows after an episode's end, by spec.autoreset."""
    vec, b = started(make, envs)
    rows = play(vec, b, tape_for(vec.spec, vec.num_agents, length))
    assert any(row["done"].any() for row in rows), "no episode ended: give a shorter max_steps"
    for row, after in pairwise(rows):
        done = row["done"]
        if vec.spec.autoreset == "same_step":
            assert row["mask"].all()
            assert torch.equal(row["reset"], done)
            continue
        assert not row["mask"][done].any()
        assert not row["reset"][done].any()
        assert (after["reward"][done] == 0).all()
        assert not after["done"][done].any()
        assert after["mask"][done].all()
        assert after["reset"][done].all()
    for row in rows:
        if b.action_mask is not None:
            heads = row["action_mask"].split(vec.spec.action.nvec, -1)
            legal = torch.stack([head.any(-1) for head in heads], -1).all(-1)
            assert legal[row["mask"]].all()


def check_states(make: Make, length: int, envs: int) -> None:
    """A snapshot is a copy as of its call; another vector goes on from it; one of other environments is refused."""
    vec, b = started(make, envs)
    tape = tape_for(vec.spec, vec.num_agents, length)
    half = length // 2 // HORIZON * HORIZON
    play(vec, b, tape[:half])
    later, at_once, held = vec.snapshot(), vec.state_dict(), shown(b, HORIZON)
    rest = play(vec, b, tape[half:])
    for state in (later(), at_once):
        again = make(envs, 0, envs)
        c = attached(again)
        again.load_state_dict(state)
        assert again.ready
        assert_same([held], [shown(c, HORIZON)])
        assert_same(rest, play(again, c, tape[half:]))
    other = make(envs - 1, 0, envs - 1)
    attached(other)
    with pytest.raises(ValueError, match="expected"):
        other.load_state_dict(at_once)
