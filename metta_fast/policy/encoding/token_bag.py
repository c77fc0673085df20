"""Encodes a list of tokens by the sum of an embedding of each: policy.encoder=token_bag.

A token, uint8 (place, feature, value), has one row of a table, found by a hash of all three: a value is a name (a tag,
an action) as well as an amount, and the table needs no vocabulary. Values up to 15 are told apart, larger ones in four
steps an octave. An empty token (255) adds nothing. For observations of many tokens of which most are empty, ten times
as fast on the CPU as AnyTokenEncoder (encoders.py), whose embeddings of place and feature are multiplied.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from metta_fast.config.encoders import EncoderMemory, check_reads
from metta_fast.contracts.env import EnvSpec
from metta_fast.policy.initial import RELU, orthogonal_linear
from metta_fast.policy.plan import ACTIVATIONS

EMPTY = 255
"""Place and feature of an empty token."""
EXACT, CODES = 16, 32
"""Values that have a code of their own, and the number of codes."""
SIZE_BITS = 14
SIZE = 1 << SIZE_BITS
"""Rows of the table; one more stands for empty tokens."""
FACTOR = 2654435761
"""Knuth's multiplicative hash: 2^32 divided by the golden ratio."""
ACTIVE = 32.0
"""Tokens that are there, about: their embeddings' sum begins with a variance of 2."""


class TokenBag(nn.Module):
    """Maps one leaf, uint8 [T, B, n, 3], to [T, B, width]: the sum of embeddings, and a second layer."""

    codes: Tensor

    def __init__(self, spec: EnvSpec, width: int, activation: str = "relu") -> None:
        super().__init__()
        check_reads("tokens", spec)
        self.leaf, self.activation = next(iter(spec.obs)), activation
        self.table = nn.EmbeddingBag(SIZE + 1, width, mode="sum", padding_idx=SIZE)
        nn.init.normal_(self.table.weight, std=math.sqrt(2.0 / ACTIVE))
        with torch.no_grad():
            self.table.weight[SIZE] = 0.0
        self.bias = nn.Parameter(torch.zeros(width))
        self.second = orthogonal_linear(width, width, RELU)
        self.register_buffer("codes", value_codes(), persistent=False)

    @staticmethod
    def memory(spec: EnvSpec, width: int) -> EncoderMemory:
        """Returns bytes of a row's keys, and the number of weights."""
        tokens = sum(leaf.shape[0] for leaf in spec.obs.values())
        return EncoderMemory(8 * 4 * tokens, (SIZE + 1 + width) * width)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        tokens = obs[self.leaf]
        rows = tokens.reshape(-1, *tokens.shape[-2:])
        summed = self.bag(rows) if rows.device.type == "cpu" else self.padded_bag(rows)
        act = ACTIVATIONS[self.activation]
        return act(self.second(act(summed + self.bias))).reshape(*tokens.shape[:-2], -1)

    def bag(self, rows: Tensor) -> Tensor:
        """Sums over the tokens that are there. rows: uint8 [R, n, 3]; the number of keys depends on them."""
        there = are_there(rows)
        count = there.sum(-1)
        return self.table(self.keys(rows[there]), count.cumsum(0) - count)

    def padded_bag(self, rows: Tensor) -> Tensor:
        """Computes the same with one key for each token, so that all shapes are known (CUDA graphs)."""
        return self.table(self.keys(rows).masked_fill(~are_there(rows), SIZE))

    def keys(self, tokens: Tensor) -> Tensor:
        """Returns the row of each token, int64 […], of uint8 […, 3]."""
        place, feature, value = tokens.unbind(-1)
        number = (place.long() * 256 + feature) * CODES + self.codes[value.int()]
        return ((number * FACTOR) & 0xFFFFFFFF) >> (32 - SIZE_BITS)


def are_there(tokens: Tensor) -> Tensor:
    """Returns which of the tokens, uint8 […, 3], are not empty, bool […]."""
    return (tokens[..., 0] != EMPTY) & (tokens[..., 1] != EMPTY)


def value_codes() -> Tensor:
    """Returns the code of each value, int64 [256]."""
    values = torch.arange(256, dtype=torch.float64)
    octaves = values.clamp(min=EXACT).log2() - math.log2(EXACT)
    steps = (octaves * (CODES - EXACT) / (8 - math.log2(EXACT))).floor()
    return torch.where(values < EXACT, values, EXACT + steps).long()
