"""The encoder of hashed tokens: what a token's row depends on, and that both ways to sum agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metta_fast.config.encoders import check_encoder_name, encoder_memory, find_encoder
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.policy import make_policy
from metta_fast.policy.encoding.token_bag import CODES, EXACT, SIZE, TokenBag, value_codes


def spec_of(shape=(9, 3), dtype="uint8", kind="tokens"):
    return EnvSpec("tiny", 1, {"obs": Leaf(shape, dtype, kind)}, ActionSpec("discrete", (4,)))


def tokens_of(seed=0, rows=6, n=9):
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 250, (rows, n, 3)).astype(np.uint8)
    found[rng.random((rows, n)) < 0.5] = 255
    found[0] = 255  # nothing is seen
    return torch.from_numpy(found)


def test_both_sums_agree_with_a_plain_loop():
    torch.manual_seed(0)
    bag, rows = TokenBag(spec_of(), 8), tokens_of()
    plain = torch.zeros(len(rows), 8)
    for i, row in enumerate(rows):
        for token in row:
            if 255 not in token[:2].tolist():
                plain[i] += bag.table.weight[bag.keys(token)]
    assert torch.allclose(bag.bag(rows), plain, atol=1e-6)
    assert torch.allclose(bag.padded_bag(rows), plain, atol=1e-6)
    assert not plain[0].any()
    gradients = []
    for sums in (bag.bag, bag.padded_bag):
        bag.zero_grad()
        sums(rows).square().sum().backward()
        gradients.append(bag.table.weight.grad.clone())
    assert torch.allclose(*gradients, atol=1e-5)
    assert not gradients[0][SIZE].any()


def test_order_and_empty_tokens_do_not_matter():
    bag, rows = TokenBag(spec_of(), 8), tokens_of(1)
    seen = bag({"obs": rows[None]})
    assert seen.shape == (1, len(rows), 8)
    assert torch.allclose(seen, bag({"obs": rows[None].flip(2)}), atol=1e-6)
    assert torch.isfinite(bag({"obs": torch.full((1, 1, 9, 3), 255, dtype=torch.uint8)})).all()


def test_values_have_codes_of_their_own_or_by_quarters_of_an_octave():
    codes = value_codes()
    assert codes[:EXACT].tolist() == list(range(EXACT))
    assert (codes.diff() >= 0).all()
    assert (codes[16], codes[31], codes[32], codes[255]) == (EXACT, EXACT + 3, EXACT + 4, CODES - 1)


def test_few_of_the_tokens_of_a_window_share_a_row():
    place, feature, value = torch.meshgrid(
        torch.arange(121), torch.arange(10), torch.arange(5), indexing="ij"
    )
    tokens = torch.stack([place, feature, value], -1).to(torch.uint8)
    keys = TokenBag(spec_of(), 2).keys(tokens).flatten()
    assert int(keys.min()) >= 0
    assert int(keys.max()) < SIZE
    assert len(keys.unique()) > 0.7 * len(keys)


def test_it_is_an_encoder_by_name():
    check_encoder_name("token_bag")
    assert find_encoder("token_bag") is TokenBag
    config = PolicyConfig(encoder="token_bag", hidden_size=8)
    policy = make_policy(config, spec_of())
    assert any(isinstance(part, TokenBag) for part in policy.modules())
    assert encoder_memory(config, spec_of()).weights > SIZE * 8
    with pytest.raises(UserError, match=r"reads \[n, 3\] uint8 tokens"):
        make_policy(config, spec_of((4,), "float32", "vector"))
