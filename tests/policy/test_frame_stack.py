"""Tests policy.frame_stack: stacks are those of a plain loop, for every kind of leaf, dtype and core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from metta_fast.buffers.frames import Frames
from metta_fast.config.frame_stack import stacked, stacked_leaf, state_numbers
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.spaces import DTYPES
from metta_fast.policy import make_policy
from metta_fast.policy.frame_stack import FrameStack
from metta_fast.policy.plan import plan_of
from tests.policy.frames import stack_rows
from tests.policy.specs import flat_spec, grid_spec, random_obs

LEAVES = {
    "flat": Leaf((5,), "float32"),
    "table": Leaf((2, 3), "float32"),
    "last": Leaf((26, 24, 3), "uint8", "image", 2),
    "first": Leaf((1, 26, 24), "uint8", "image", 0),
    "grey": Leaf((24, 26), "uint8", "image"),
    "cells": Leaf((4, 5, 3), "uint8", "symbols", 2, ((0, 3), (0, 9), (-1, 255))),
    "map": Leaf((4, 5), "uint8", "symbols"),
    "symbols": Leaf((7,), "uint8", "symbols"),
}
SHAPES = {
    "flat": (15,),
    "table": (6, 3),
    "last": (26, 24, 9),
    "first": (3, 26, 24),
    "grey": (3, 24, 26),
    "cells": (4, 5, 9),
    "map": (4, 5, 3),
    "symbols": (21,),
}
SPEC = flat_spec(**LEAVES)
ROWS, AGENTS = 7, 4


def beside(stack: np.ndarray, name: str) -> np.ndarray:
    """[…, K, *shape] → […, *stacked shape], by numpy's own functions."""
    frames = list(np.moveaxis(stack, 2, 0))
    axis = {"last": 4, "first": 2, "cells": 4}.get(name, 2)
    if name == "grey":
        return np.stack(frames, 2)
    return np.stack(frames, 4) if name == "map" else np.concatenate(frames, axis)


def resets(rows: int, agents: int, seed: int = 0) -> Tensor:
    reset = torch.rand(rows, agents, generator=torch.Generator().manual_seed(seed)) < 0.25
    reset[0] = True
    return reset


class Keeps(torch.nn.Module):
    """Keeps what the policy within is called with."""

    head: Any = None
    actor_leaves = critic_leaves = tuple(LEAVES)
    state_shape = (0, 0)

    def forward(self, obs: Any, state: Tensor, reset: Tensor) -> Any:
        self.obs = obs
        return torch.zeros(*reset.shape, 3), torch.zeros(reset.shape), state


@pytest.mark.parametrize("count", [2, 3, 5])
def test_stacks_are_those_of_a_plain_loop(count: int) -> None:
    inner: Any = Keeps()
    policy, obs, reset = FrameStack(inner, SPEC, count), random_obs(SPEC, ROWS, AGENTS), resets(ROWS, AGENTS)
    policy(obs, policy.initial_state(AGENTS), reset)
    for name, leaf in stacked(SPEC, count).obs.items():
        plain = beside(stack_rows(count, obs[name].numpy(), reset.numpy()), name)
        assert np.array_equal(inner.obs[name].numpy(), plain), name
        assert plain.shape[2:] == leaf.shape
        assert inner.obs[name].dtype == obs[name].dtype


def test_shapes_and_channels_of_three_frames() -> None:
    seen = stacked(SPEC, 3).obs
    assert {name: leaf.shape for name, leaf in seen.items()} == SHAPES
    assert {name: leaf.channel_axis for name, leaf in seen.items() if leaf.kind == "image"} == {
        "last": 2,
        "first": 0,
        "grey": 0,
    }
    assert stacked(SPEC, 1) is SPEC


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("shared", [True, False])
def test_rows_one_by_one_give_what_a_segment_gives(core: str, shared: bool) -> None:
    torch.manual_seed(0)
    config = PolicyConfig(frame_stack=4, core=core, shared=shared, hidden_size=16)
    policy, obs, reset = make_policy(config, SPEC), random_obs(SPEC, ROWS, AGENTS), resets(ROWS, AGENTS)
    with torch.inference_mode():
        whole = policy(obs, policy.initial_state(AGENTS), reset)
        state, rows = policy.initial_state(AGENTS), []
        for t in range(ROWS):
            out = policy({name: leaf[t : t + 1] for name, leaf in obs.items()}, state, reset[t : t + 1])
            state = out.state
            rows.append(out)
    torch.testing.assert_close(torch.cat([row.params for row in rows]), whole.params, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.cat([row.value for row in rows]), whole.value, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(state, whole.state, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("core", [(0, 0), (2, 3)])
def test_a_state_gives_back_frames_and_core(dtype: str, core: tuple[int, int]) -> None:
    spec = flat_spec(a=Leaf((5,), dtype), b=Leaf((2, 2), "uint8"))
    frames, g = Frames(spec, 3, core), torch.Generator().manual_seed(0)
    ranges = {"int8": (-128, 128), "bool": (0, 2)}
    past = {
        name: torch.randint(*ranges.get(leaf.dtype, (0, 256)), (2, 6, *leaf.shape), generator=g).to(
            getattr(torch, leaf.dtype)
        )
        for name, leaf in spec.obs.items()
    }
    memory = torch.randn(core[0], 6, core[1], generator=g)
    state = frames.join(memory, past)
    assert state.dtype == torch.float32
    assert state.shape == (1, 6, frames.state_shape[1])
    assert frames.state_shape[1] == state_numbers(spec, 3) + core[0] * core[1]
    back, found = frames.split(state)
    assert torch.equal(back, memory)
    for name, leaf in past.items():
        assert found[name].dtype == leaf.dtype
        assert torch.equal(found[name], leaf), name
    assert not any(leaf.any() for leaf in frames.split(torch.zeros_like(state))[1].values())


def test_bytes_take_a_third_of_a_float() -> None:
    pixels = flat_spec(obs=Leaf((84, 84), "uint8", "image"))
    assert state_numbers(pixels, 4) == 84 * 84


def test_a_critic_without_its_leaves_leaves_their_frames_zero() -> None:
    spec = flat_spec(obs=LEAVES["flat"], truth=LEAVES["table"])
    config = PolicyConfig(frame_stack=3, shared=False, actor_obs=["obs"], hidden_size=16)
    policy, obs, reset = make_policy(config, spec), random_obs(spec, ROWS, AGENTS), resets(ROWS, AGENTS)
    state = policy.initial_state(AGENTS)
    full, seen = policy(obs, state, reset), policy({"obs": obs["obs"]}, state, reset)
    assert torch.equal(full.params, seen.params)
    assert seen.value.isnan().all()
    assert not full.value.isnan().any()
    assert isinstance(policy, FrameStack)
    assert not policy.frames.split(seen.state)[1]["truth"].any()


def test_frames_are_normalised_one_by_one_and_zeros_stay_zeros() -> None:
    spec = flat_spec(obs=LEAVES["flat"])
    policy = make_policy(PolicyConfig(frame_stack=3, normalize_obs=True, hidden_size=16), spec)
    assert policy.normalizer is not None
    policy.normalizer.shift.fill_(2.0)
    policy.normalizer.scale.fill_(0.5)
    assert isinstance(policy, FrameStack)
    inner: Any = Keeps()
    policy.stacked = inner
    obs, reset = random_obs(spec, ROWS, AGENTS), resets(ROWS, AGENTS)
    policy(obs, policy.initial_state(AGENTS), reset)
    plain = stack_rows(3, ((obs["obs"] - 2) * 0.5).numpy(), reset.numpy())
    assert np.array_equal(inner.obs["obs"].numpy(), plain.reshape(ROWS, AGENTS, -1))


def test_a_users_own_policy_sees_stacks() -> None:
    config = PolicyConfig(name="tests.policy.test_frame_stack:Own", frame_stack=3)
    policy = make_policy(config, flat_spec(obs=LEAVES["flat"]))
    assert isinstance(policy, FrameStack)
    assert next(policy.parameters()).shape == (4, 15)
    assert plan_of(policy) == "policy.frame_stack=3"


class Own(torch.nn.Module):
    """A user's network."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(spec.obs["obs"].shape[0], 4)

    def forward(self, obs: Any, state: Tensor, reset: Tensor) -> Any:
        out = self.layer(obs["obs"])
        return out[..., :-1], out[..., -1], state


def test_grids_and_tokens_are_refused() -> None:
    with pytest.raises(UserError, match=r"policy.frame_stack=2: .* of kind grid, .* policy.core=mingru"):
        make_policy(PolicyConfig(frame_stack=2), grid_spec("compact"))


def test_an_image_of_two_axes_has_its_frames_as_channels() -> None:
    assert stacked_leaf(LEAVES["grey"], 4) == Leaf((4, 24, 26), "uint8", "image", 0)
    assert stacked_leaf(LEAVES["map"], 2) == Leaf((4, 5, 2), "uint8", "symbols", 2)
    assert stacked_leaf(LEAVES["cells"], 2).bounds == LEAVES["cells"].bounds * 2
    assert stacked_leaf(LEAVES["symbols"], 2) == Leaf((14,), "uint8", "symbols")
