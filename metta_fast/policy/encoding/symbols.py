"""Encodes grids of symbols, [T, B, height, width, channels] of whole numbers, as one vector a row, [T, B, width].

    value ─► index in its channel's vocabulary ─► embedding ─► sum over a cell's channels ─► ReLU
          ─► all cells side by side ─► one dense layer ─► activation

MiniGrid's cells are (object, colour, state): numbers that are names, not amounts. The ReLU lets a cell mean more than
the sum of its channels, such as "a door that is locked" (docs/images.md has the comparison). A value under its
channel's bounds is read as the lowest, one above as the highest. Sizes: metta_fast/config/encoding/symbol_layers.py.

    metta-fast train env=MiniGrid-DoorKey-5x5-v0 trainer.total_timesteps=500000
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.config.encoding.symbol_layers import EMBEDDED, cells, vocabularies
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.policy.initial import RELU, orthogonal_linear
from metta_fast.policy.plan import ACTIVATIONS


class SymbolTable(nn.Module):
    """Embeds the cells of one leaf: [rows, *shape] of whole numbers → [rows, cells, EMBEDDED] float32, from 0 on.

    The vocabularies of all channels are parts of one table.
    """

    lowest: Tensor
    highest: Tensor
    """[channels] int64: values outside of them share the first and the last symbol."""
    shift: Tensor
    """[channels] int64: a symbol's row in the table is its value + shift."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.axis = leaf.channel_axis
        known = vocabularies(leaf)
        ends = list(accumulate(size for _, size in known))
        rows = {
            "lowest": [first for first, _ in known],
            "highest": [first + size - 1 for first, size in known],
            "shift": [end - size - first for end, (first, size) in zip(ends, known)],
        }
        for name, values in rows.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)
        self.table = nn.Embedding(ends[-1], EMBEDDED)
        nn.init.normal_(self.table.weight, std=len(known) ** -0.5)

    def forward(self, symbols: Tensor) -> Tensor:
        last = symbols.unsqueeze(-1) if self.axis is None else symbols.movedim(self.axis + 1, -1)
        known = torch.minimum(torch.maximum(last.long(), self.lowest), self.highest)
        return F.relu(self.table((known + self.shift).flatten(1, -2)).sum(-2))


class SymbolEncoder(nn.Module):
    """Embeddings for each leaf, and one dense layer over the cells of all."""

    def __init__(self, spec: EnvSpec, width: int, activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.leaves = tuple(spec.obs)
        self.tables = nn.ModuleList(SymbolTable(leaf) for leaf in spec.obs.values())
        self.dense = orthogonal_linear(EMBEDDED * sum(map(cells, spec.obs.values())), width, RELU)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        features, rows = [], (0, 0)
        for name, table in zip(self.leaves, self.tables):
            symbols = obs[name]
            rows = symbols.shape[:2]  # type: ignore[assignment]
            features.append(table(symbols.flatten(0, 1)).flatten(1))
        x = torch.cat(features, -1) if len(features) > 1 else features[0]
        return ACTIVATIONS[self.activation](self.dense(x)).unflatten(0, rows)
