"""Tests action heads: sampling, log-probabilities, masks, branches of different sizes."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical

from metta_fast.contracts.env import ActionSpec
from metta_fast.policy import ActionHead
from metta_fast.policy.heads import masked_sums, running_sum

NEVER = -math.inf
JUST_BELOW_1 = 1 - 2**-24


def head(*nvec: int) -> ActionHead:
    return ActionHead(ActionSpec("discrete", nvec))


def test_one_uniform_number_walks_through_the_probabilities() -> None:
    logits = torch.tensor([0.5, 0.25, 0.25]).log().expand(6, 3)
    noise = torch.tensor([0.0, 0.49, 0.51, 0.74, 0.76, JUST_BELOW_1])[:, None]
    action, logprob = head(3).sample(logits, noise)
    assert action.dtype == torch.int32
    assert action.flatten().tolist() == [0, 0, 1, 1, 2, 2]
    torch.testing.assert_close(logprob.exp(), torch.tensor([0.5, 0.5, 0.25, 0.25, 0.25, 0.25]))


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_the_running_sums_of_both_devices_agree_and_never_fall(seed: int, n: int) -> None:
    p = torch.rand(50, 3, n, generator=torch.Generator().manual_seed(seed)).pow(8)
    p[p < 0.01] = 0
    sums = masked_sums(p)
    torch.testing.assert_close(sums, running_sum(p))
    assert (sums.diff(dim=-1) >= 0).all()
    assert (sums.diff(dim=-1)[p[..., 1:] == 0] == 0).all()


def test_sampled_actions_follow_their_probabilities() -> None:
    logits = torch.tensor([1.0, -1.0, 0.3, 0.0, 2.0]).expand(40000, 5)
    action, _ = head(2, 3).sample(logits, torch.rand(40000, 2, generator=torch.Generator().manual_seed(0)))
    for i, part in enumerate(logits[0].split([2, 3])):
        seen = torch.bincount(action[:, i].long(), minlength=len(part)) / len(action)
        torch.testing.assert_close(seen, part.softmax(-1), atol=0.01, rtol=0)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.floats(0, 30))
def test_logprob_and_entropy_are_those_of_independent_categoricals(
    seed: int, nvec: list[int], scale: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    params = torch.randn(3, 2, sum(nvec), generator=g) * scale
    noise = torch.rand(3, 2, len(nvec), generator=g)
    one = head(*nvec)
    action, sampled = one.sample(params, noise)
    logprob, entropy = one.logprob_entropy(params, action)
    parts = [Categorical(logits=part) for part in params.split(nvec, -1)]
    expected = sum(p.log_prob(action[..., i]) for i, p in enumerate(parts))
    torch.testing.assert_close(logprob, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(sampled, logprob)
    torch.testing.assert_close(entropy, sum(p.entropy() for p in parts), atol=1e-4, rtol=1e-4)
    modes = torch.stack([part.argmax(-1) for part in params.split(nvec, -1)], -1).int()
    assert torch.equal(one.mode(params), modes)


@given(st.integers(0, 2**32), st.integers(2, 9))
def test_a_forbidden_choice_is_never_taken_however_extreme_the_noise(seed: int, n: int) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(200, n, generator=g) * 8
    forbidden = torch.rand(200, n, generator=g) < 0.6
    forbidden[forbidden.all(-1), 0] = False
    logits = logits.masked_fill(forbidden, NEVER)
    for noise in (
        torch.zeros(200, 1),
        torch.full((200, 1), JUST_BELOW_1),
        torch.ones(200, 1),
        torch.rand(200, 1),
    ):
        action, logprob = head(n).sample(logits, noise)
        assert not forbidden.gather(1, action.long()).any()
        assert logprob.isfinite().all()


def test_masked_logits_give_finite_entropy_and_gradients() -> None:
    logits = torch.tensor([[0.3, NEVER, 0.1, NEVER, NEVER, 1.0]], requires_grad=True)
    logprob, entropy = head(2, 4).logprob_entropy(logits, torch.tensor([[0, 3]]))
    (logprob + entropy).sum().backward()
    assert entropy.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_head_without_a_choice_is_told_apart_from_nan() -> None:
    """Whether it is an error depends on the row (tests/ppo/test_masked_rows.py)."""
    params = torch.tensor([[0.0, 1.0, NEVER, NEVER], [0.0, 1.0, NEVER, 0.0]])
    action, logprob = head(2, 2).sample(params, torch.zeros(2, 2))
    assert logprob[0] == NEVER
    assert action[0, 1] == 0
    assert logprob[1].isfinite()
    assert head(2, 2).no_choice(params).tolist() == [True, False]


def test_nan_is_passed_on_for_the_guard_to_name() -> None:
    action, logprob = head(3).sample(torch.full((1, 3), math.nan), torch.full((1, 1), 0.5))
    assert action.item() in range(3)
    assert logprob.isnan().all()


def test_the_mathematics_is_float32_whatever_comes_in() -> None:
    params = torch.randn(4, 6).bfloat16()
    action, logprob = head(6).sample(params, torch.rand(4, 1))
    torch.testing.assert_close(logprob, params.float().log_softmax(-1).gather(1, action.long())[:, 0])
