"""Tests the rollout with rows as graphs: launch by launch on the CPU it gives the plain one's rows bit by bit.

test_cuda.py and test_gpu_loop.py compare the graphs themselves, on a card.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.algorithms.ppo import PPO
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.sanity.legal import Legal
from metta_fast.policy import make_policy
from metta_fast.rollout.graph_rollout import GraphRollout, words
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo

ARRAYS = ("mask", "reset", "action", "logprob", "value", "reward", "terminal", "truncation", "state")


def graph_ppo(*args: Any, **keys: Any) -> PPO:
    """A PPO whose rollout is a GraphRollout; there are no graphs without a card."""
    ppo = make_ppo(*args, **keys)
    ppo.rollout = GraphRollout(
        ppo.vec,
        ppo.policy,
        ppo.buffers,
        device=ppo.device,
        seed=ppo.config.seed,
        autocast=nullcontext,
        timer=ppo.timer,
        graphs=False,
    )
    return ppo


def same(one: PPO, other: PPO) -> None:
    for name in ARRAYS:
        assert torch.equal(getattr(one.buffers, name), getattr(other.buffers, name)), name
    assert all(torch.equal(leaf, other.buffers.obs[name]) for name, leaf in one.buffers.obs.items())


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("keys", [{}, {"lstm": True}, {"box": True}])
def test_rows_are_those_of_the_plain_rollout(keys: dict[str, bool], blocks: int) -> None:
    box, lstm = keys.get("box", False), keys.get("lstm", False)
    plain, ours = (
        make(tickers(5, box=box), blocks=blocks, lstm=lstm, horizon=12, bptt=4, minibatches=1)
        for make in (make_ppo, graph_ppo)
    )
    for _ in range(3):
        for ppo in (plain, ours):
            ppo.collect()
        same(ours, plain)
        for ppo in (plain, ours):
            ppo.update()
    for ppo in (plain, ours):
        ppo.vec.close()


def test_action_masks_reach_the_policy() -> None:
    """Legal raises on an illegal action."""
    factory = PythonEnvFactory(lambda index: Legal())
    keys: dict[str, Any] = {"num_envs": 4, "blocks": 2, "horizon": 24, "bptt": 4, "minibatches": 1}
    torch.manual_seed(3)
    policy = make_policy(PolicyConfig(hidden_size=16), factory.spec)
    plain, ours = (make(factory, policy=policy, **keys) for make in (make_ppo, graph_ppo))
    for ppo in (plain, ours):
        ppo.collect()
    assert not plain.buffers.action_mask.all()
    same(ours, plain)
    for ppo in (plain, ours):
        ppo.vec.close()


def test_a_state_goes_from_one_to_the_other() -> None:
    """The tensors that a graph works on stay where they are."""
    keys: dict[str, Any] = {"blocks": 2, "lstm": True, "horizon": 8, "bptt": 4, "minibatches": 1}
    plain, ours = make_ppo(tickers(4), **keys), graph_ppo(tickers(4), **keys)
    for ppo in (plain, ours):
        ppo._keep_rollout = True
    places = [state.data_ptr() for state in ours.rollout._states]
    for _ in range(2):
        plain.collect()
        plain.update()
    ours.vec.load_state_dict(plain.env_state()())
    ours.load_state_dict(plain.state_dict())
    for ppo in (plain, ours):
        ppo.collect()
    same(ours, plain)
    assert [state.data_ptr() for state in ours.rollout._states] == places
    ours.rollout.forget()
    assert not ours.rollout.held
    assert not torch.cat(ours.rollout._states, 1).any()
    for ppo in (plain, ours):
        ppo.vec.close()


@given(
    rows=st.integers(1, 4),
    agents=st.integers(1, 9),
    cut=st.tuples(st.integers(0, 8), st.integers(1, 9)),
    shape=st.sampled_from([(), (1,), (3,), (4,), (2, 3), (8,)]),
    dtype=st.sampled_from([torch.uint8, torch.int8, torch.bool, torch.int16, torch.float32, torch.float64]),
)
def test_words_are_the_same_memory(
    rows: int, agents: int, cut: tuple[int, int], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    whole = torch.randint(0, 2, (rows, agents, *shape)).to(dtype)
    block = whole[:, min(cut[0], agents - 1) : cut[0] + cut[1]]
    found = words(block)
    assert found.data_ptr() == block.data_ptr()
    for t in range(rows):
        assert torch.equal(found[t].clone().view(dtype).view(block.shape[1:]), block[t])


def test_words_are_as_wide_as_they_can_be() -> None:
    obs = torch.zeros(3, 8, 387, dtype=torch.uint8)
    assert words(obs).dtype == words(obs[:, :8]).dtype == torch.int64
    assert words(obs[:, 4:]).dtype == torch.int32  # begins at a multiple of four bytes
    assert words(obs[:, 1:]).dtype == torch.uint8
    with pytest.raises(ValueError, match="are not contiguous"):
        words(obs[..., :386])
