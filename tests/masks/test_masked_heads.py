"""Tests masked heads beside torch's distributions over the legal choices alone, and sb3-contrib's where it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Normal

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.export.step import Step
from metta_fast.inference.loaded_policy import LoadedPolicy
from metta_fast.policy import ActionHead, MixedHead, make_policy
from metta_fast.policy.mixed_head import make_head
from tests.masks.masked_env import SPACES, MaskedEnv

NVECS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def some(nvec: list[int], numbers: int, seed: int, rows: int = 4) -> tuple[Any, Tensor, Tensor, Tensor]:
    """A head, params that ask for a gradient, a mask with a legal choice for each head, and noise."""
    spec = ActionSpec(
        "mixed" if numbers else "discrete", tuple(nvec), (0,) * len(nvec), (-1.0,) * numbers, (1.0,) * numbers
    )
    head, random = make_head(spec), torch.Generator().manual_seed(seed)
    params = torch.randn(rows, head.num_params, generator=random) * 2
    params[:, head.num_params - numbers :].clamp_(-2, 1)  # the head bounds the deviations
    params.requires_grad_()
    mask = torch.rand(rows, sum(nvec), generator=random) < 0.4
    at = 0
    for n in nvec:
        mask[torch.arange(rows), at + torch.randint(0, n, (rows,), generator=random)] = True
        at += n
    draw = torch.randn if numbers else torch.rand
    return head, params, mask, draw(rows, spec.width, generator=random)


def reference(nvec: list[int], params: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy [rows], row by row over the legal choices alone."""
    numbers = (params.shape[-1] - sum(nvec)) // 2
    logprobs, entropies = [], []
    for row in range(len(params)):
        *logits, mean, log_std = params[row].split([*nvec, numbers, numbers])
        legal = mask[row].split(nvec)
        normal = Normal(mean, log_std.exp())
        logprob, entropy = normal.log_prob(action[row, len(nvec) :]).sum(), normal.entropy().sum()
        for i in range(len(nvec)):
            of_legal = Categorical(logits=logits[i][legal[i]])
            place = int(legal[i][: int(action[row, i])].sum())
            logprob = logprob + of_legal.log_prob(torch.tensor(place))
            entropy = entropy + of_legal.entropy()
        logprobs.append(logprob)
        entropies.append(entropy)
    return torch.stack(logprobs), torch.stack(entropies)


@settings(deadline=None, max_examples=40)
@given(NVECS, st.integers(0, 2), st.integers(0, 2**31))
def test_sample_logprob_entropy_and_gradient_are_those_over_the_legal_choices(
    nvec: list[int], numbers: int, seed: int
) -> None:
    head, params, mask, noise = some(nvec, numbers, seed)
    masked = head.masked(params, mask)
    action, sampled = head.sample(masked, noise)
    for chosen in (action, head.mode(masked)):
        for i, legal in enumerate(mask.split(nvec, -1)):
            assert legal.gather(-1, chosen[:, i : i + 1].long()).all()
    logprob, entropy = head.logprob_entropy(masked, action)
    expected = reference(nvec, params, mask, action)
    torch.testing.assert_close((logprob, entropy), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(sampled, logprob, rtol=1e-5, atol=1e-5)
    weight = torch.linspace(-1, 1, len(params))
    ours, theirs = (
        torch.autograd.grad(((p - p.detach()).exp() * weight - 0.1 * e).sum(), params, retain_graph=True)[0]
        for p, e in ((logprob, entropy), expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert (ours[:, : sum(nvec)][~mask] == 0).all()


def test_the_same_as_sb3_contribs_masked_distribution() -> None:
    module = pytest.importorskip("sb3_contrib.common.maskable.distributions")
    for seed in range(5):
        head, params, mask, noise = some([4, 9], 0, seed)
        masked = head.masked(params, mask)
        action, _ = head.sample(masked, noise)
        theirs = module.MaskableMultiCategoricalDistribution([4, 9]).proba_distribution(params)
        theirs.apply_masking(mask.numpy())
        ours = head.logprob_entropy(masked, action)
        torch.testing.assert_close(ours, (theirs.log_prob(action), theirs.entropy()), rtol=1e-4, atol=1e-4)
        assert (theirs.mode() == head.mode(masked)).all()


@pytest.mark.parametrize("kind", [ActionHead, MixedHead])
def test_a_head_without_a_legal_choice_spoils_no_other_row(kind: Any) -> None:
    """A masked row may have none: no NaN comes from it."""
    head, params, mask, noise = some([3, 2], 2 if kind is MixedHead else 0, 0)
    assert isinstance(head, kind)
    mask[1] = False
    masked = head.masked(params, mask)
    action, _ = head.sample(masked, noise)
    logprob, entropy = head.logprob_entropy(masked, action)
    assert torch.autograd.grad((logprob + entropy).sum(), params)[0].isfinite().all()


def loaded(name: str, source: str) -> tuple[LoadedPolicy, PythonEnvFactory]:
    given = "info" if source == "info" else "auto"
    factory = PythonEnvFactory(lambda index: MaskedEnv(SPACES[name], source, "parts"), action_mask=given)
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=8), factory.spec)
    return LoadedPolicy(
        policy, factory, torch.device("cpu"), deterministic=False, seed=1, checkpoint="x"
    ), factory


@pytest.mark.parametrize("name", ["mixed", "bits"])
@pytest.mark.parametrize("source", ["obs", "info"])
def test_a_loaded_policy_takes_the_environments_own_masks(name: str, source: str) -> None:
    policy, _ = loaded(name, source)
    env = MaskedEnv(SPACES[name], source, "parts")
    for episode in range(4):
        obs, info = env.reset(seed=episode)
        for _ in range(env.length):
            action = policy.act(obs) if source == "obs" else policy.act(obs, action_mask=info["action_mask"])
            obs, *_, info = env.step(action)  # raises on an illegal one


def test_a_loaded_policy_takes_masks_of_several_agents() -> None:
    policy, factory = loaded("mixed", "info")
    (a, b, c, d, e) = factory.spec.action.nvec
    one = np.zeros((3, a), bool)
    one[:, 2] = True
    bits = (np.array([[False, True]] * 3), torch.tensor([[True, False]] * 3))
    turn = np.concatenate([np.ones((3, d), np.int8), np.eye(3, dtype=np.int8)], 1)
    acted = policy.act(np.zeros((3, 2), np.float32), action_mask={"pick": (one, bits), "turn": turn})
    assert acted["pick"][0].tolist() == [7, 7, 7]
    assert acted["pick"][1].tolist() == [[1, 0]] * 3
    assert acted["turn"][:, 1].tolist() == [0, 1, 2]
    for wrong, words in (
        (
            {"pick": (one, bits), "turn": turn[:, 1:]},
            r"action_mask\['turn'\] has shape \[3, 4\], expected \[3, 5\]",
        ),
        (np.zeros((3, a + b + c + d + e), bool), "leaves agent 0 no legal choice"),
        (np.ones((3, 3)), r"shape \[3, 3\], expected \[3, 13\]"),
    ):
        with pytest.raises(UserError, match=words):
            policy.act(np.zeros((3, 2), np.float32), action_mask=wrong)


def test_an_exported_step_of_mixed_actions_takes_the_mask() -> None:
    policy, factory = loaded("mixed", "info")
    spec = factory.spec
    assert isinstance(factory.action_space, spaces.Dict)
    _, _, mask, _ = some(list(spec.action.nvec), 2, 3)
    obs = torch.randn(4, 2)
    action = Step(policy.policy, spec)(obs, mask)[0]
    for i, legal in enumerate(mask.split(spec.action.nvec, -1)):
        choice = action[:, i : i + 1].long() - spec.action.start[i]
        assert legal.gather(-1, choice).all()
