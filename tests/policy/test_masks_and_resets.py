"""Tests that forbidden choices and resets reach the policy's outputs, and that it says which of them it reads."""

from __future__ import annotations

import math

import pytest
import torch

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, Leaf
from metta_fast.policy import ActionHead, make_policy
from tests.policy.specs import flat_spec, random_obs


def test_forbidden_choices_are_minus_infinity_and_a_head_without_a_choice_is_left_alone() -> None:
    head = ActionHead(ActionSpec("discrete", (2, 3)))
    params = torch.arange(5.0).repeat(4, 1)
    mask = torch.tensor([[c == "1" for c in row] for row in ("11111", "01010", "00111", "00000")])
    found = head.masked(params, mask)
    never = -math.inf
    assert found.tolist() == [
        [0, 1, 2, 3, 4],
        [never, 1, never, 3, never],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
    ]
    action, logprob = head.sample(found, torch.rand(4, 2))
    assert logprob.isfinite().all()
    assert action[1].tolist() == [1, 1]
    assert head.mode(found).tolist() == [[1, 2], [1, 1], [1, 2], [1, 2]]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_a_policy_reads_resets_exactly_if_its_output_depends_on_them(core: str, shared: bool) -> None:
    """A rollout copies `reset` late where it is not read."""
    spec = flat_spec((3, 4), obs=Leaf((6,), "float32"))
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=16, core=core, shared=shared), spec)
    obs, layers = random_obs(spec, 1, 5, seed=1), policy.state_shape
    state = torch.randn(layers[0], 5, layers[1])
    with torch.no_grad():
        outputs = [policy(obs, state, torch.full((1, 5), reset)) for reset in (False, True)]
    differs = not all(torch.equal(a, b) for a, b in zip(*outputs))
    assert policy.reads_reset() == differs == (core != "none")
