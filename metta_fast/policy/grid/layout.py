"""Decodes the grid's uint8 observations into inputs of a linear layer: one column for each meaning of a byte.

An amount n enters as log2(1 + n) / 2 (1 → 0.5, 3 → 1, 15 → 2, 255 → 4). Cells are in row-major order of the
11 × 11 window; kind 0 is an empty cell or one off the map and gives nothing. Byte layouts: grid_observe.h.

    compact [387] → 121 cells × 24, then own 64
        cell  0–14 kind 1…15 (one-hot); agents: 15, 16 direction faced (rows down, columns right; ±1),
              17 frozen, 18 group / 15, 19 items, 20 lasers;
              converters: 21 busy, 22 what it gives, 23 what it holds of its inputs
        own   0–9 items, 10–13 orientation (one-hot), 14 frozen, 15 frozen / 10, 16 group / 15, 17 color / 8,
              18 glyph / 8, 19–27 last action (one-hot), 28 its argument / 8, 29 last reward,
              30 completion / 255, 31–38 rewarded items (bits), 39–62 the faced cell, 63 it is empty
    dense [11, 11, 24] → 121 cells × 32, then 24
        cell  0–14 kind (one-hot); agents: 15, 16 direction faced, 17 frozen / 10, 18 group / 15,
              21 glyph / 8; all but walls: 19 color / 8, 20 busy, 22–31 items
        own   0 completion / 255, 1–9 last action (one-hot), 10 its argument / 8, 11 last reward,
              12–19 rewarded items (bits), 20–23 orientation (one-hot)
    tokens [200, 3] → as dense: a token's value is put at its (location, feature)

COMPACT_CELL and DENSE_CELL are the cells' columns from 15 on as tables, from which Triton's kernels are generated
(triton/decode.py, triton/compact_lanes.py). layout.h is the same decoding in C, giving only the columns that are not
zero. Tests compare all of them with the torch code below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from metta_fast.contracts.env import EnvSpec

VIEW, CELLS, CENTRE, KINDS, ACTIONS = 11, 121, 60, 15, 9
COMPACT_BYTES, COMPACT_OWN = 3 * CELLS + 24, 64
"""Bytes of a compact observation; columns after its cells'."""
DENSE_FEATURES, DENSE_BYTES, DENSE_OWN = 24, 24 * CELLS, 24
"""Bytes of a dense cell and observation; columns after its cells'."""

Channel = tuple[str, str, float, int, int, int, int]
"""(who, how, divisor, byte, less, shift, bits) of a column of a cell: n = (byte − less) >> shift, its lowest `bits`.

who: the cells that have it: "agent"; "converter" (kinds 3 … 14); "thing" (all but walls); others are 0.
how: "scaled" n / divisor; "amount" log2(1 + n) / 2; "some" 1 if n is not 0; "rows", "columns" the direction faced.
In compact observations a cell of kind 1 is an agent only if its byte 1 is not 0.
"""


def _channel(
    who: str, how: str, byte: int, divisor: float = 1.0, less: int = 0, shift: int = 0, bits: int = 8
) -> Channel:
    """Returns a channel with the usual values where none are given: the whole byte, not divided."""
    return who, how, divisor, byte, less, shift, bits


COMPACT_CELL: tuple[Channel, ...] = (
    _channel("agent", "rows", 1, less=1, bits=2),
    _channel("agent", "columns", 1, less=1, bits=2),
    _channel("agent", "some", 1, less=1, shift=2, bits=1),
    _channel("agent", "scaled", 1, 15.0, less=1, shift=3, bits=4),
    _channel("agent", "amount", 2, bits=4),
    _channel("agent", "amount", 2, shift=4, bits=4),
    _channel("converter", "some", 1),
    _channel("converter", "amount", 2, bits=4),
    _channel("converter", "amount", 2, shift=4, bits=4),
)
"""Columns 15 … 23 of a compact cell."""
DENSE_CELL: tuple[Channel, ...] = (
    _channel("agent", "rows", 4),
    _channel("agent", "columns", 4),
    _channel("agent", "scaled", 3, 10.0),
    _channel("agent", "scaled", 1, 15.0),
    _channel("thing", "scaled", 5, 8.0),
    _channel("thing", "scaled", 6),
    _channel("agent", "scaled", 12, 8.0),
    *(_channel("thing", "amount", 14 + item) for item in range(10)),
)
"""Columns 15 … 31 of a dense cell."""
COMPACT_COLUMNS = (KINDS + len(COMPACT_CELL)) * CELLS + COMPACT_OWN
DENSE_COLUMNS = (KINDS + len(DENSE_CELL)) * CELLS + DENSE_OWN


@dataclass(frozen=True)
class Layout:
    """Says how one kind of observation is decoded."""

    index: int
    """Its number in sparse_layer.h."""
    shape: tuple[int, ...]
    columns: int
    active: float
    """Typical sum of the inputs' squares: scales the first weights."""
    decode: Callable[[Tensor, torch.dtype], Tensor]
    """(obs uint8 […, *shape], dtype) → inputs […, columns]."""


def layout_of(spec: EnvSpec, leaf: str) -> Layout | None:
    """Returns the layout of an observation's leaf, or None if it is not one of the grid's.

    A leaf is the grid's if its kind is "grid" or it is named for the layout, and its shape fits.
    """
    given = spec.obs[leaf]
    for kind, layout in LAYOUTS.items():
        if given.dtype == "uint8" and given.shape == layout.shape and (given.kind == "grid" or leaf == kind):
            return layout
    return None


def numbers(x: Tensor) -> Tensor:
    """Converts uint8 to int32 at once, so that no compiled code computes in uint8.

    On a GPU inductor casts to uint8 by way of int8 (pytorch#158567): values from 128 on would be wrong.
    """
    return x.to(torch.int32)


def amount(n: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns log2(1 + n) / 2 of amounts 0 … 255."""
    return (n.float() + 1.0).log2().mul(0.5).to(dtype)


def one_hot(x: Tensor, first: int, count: int, dtype: torch.dtype) -> Tensor:
    """Returns […, count]: 1 where x = first + i, all 0 for other values."""
    return (x.unsqueeze(-1) == torch.arange(first, first + count, device=x.device, dtype=x.dtype)).to(dtype)


def bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bits of bytes, […, 8], lowest first."""
    places = torch.arange(8, device=x.device, dtype=x.dtype)
    return (torch.bitwise_right_shift(x.unsqueeze(-1), places) & 1).to(
        dtype
    )  # ONNX has no `>>` of two tensors


def facing(orientation: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns (rows, columns) ±1 of 0 up, 1 down, 2 left, 3 right, […, 2]; 0 where not valid."""
    up, down, left, right = ((orientation == i) & valid for i in range(4))
    return torch.stack([down.to(dtype) - up.to(dtype), right.to(dtype) - left.to(dtype)], -1)


def compact_cells(cell: Tensor, dtype: torch.dtype) -> Tensor:
    """Decodes compact cells, uint8 […, 3] → […, 24]."""
    kind, status, low, high = cell[..., 0], cell[..., 1], cell[..., 2] & 15, cell[..., 2] >> 4
    agent = (kind == 1) & (status > 0)
    converter = (kind >= 3) & (kind <= 14)
    flags = torch.where(agent, status - 1, 0)
    low, high = amount(low, dtype), amount(high, dtype)
    rest = [
        flags >> 2 & 1,
        (flags >> 3 & 15).to(dtype) / 15,
        agent * low,
        agent * high,
        converter & (status > 0),
        converter * low,
        converter * high,
    ]
    return torch.cat(
        [
            one_hot(kind, 1, KINDS, dtype),
            facing(flags & 3, agent, dtype),
            torch.stack([x.to(dtype) for x in rest], -1),
        ],
        -1,
    )


def compact_inputs(obs: Tensor, dtype: torch.dtype) -> Tensor:
    """Decodes compact observations, uint8 […, 387] → […, 2968]."""
    obs = numbers(obs)
    cells, own = obs[..., : 3 * CELLS].unflatten(-1, (CELLS, 3)), obs[..., 3 * CELLS :]
    frozen, faced = own[..., 11], own[..., 20:23]
    scalars = [
        frozen > 0,
        frozen.to(dtype) / 10,
        own[..., 12].to(dtype) / 15,
        own[..., 13].to(dtype) / 8,
        own[..., 14].to(dtype) / 8,
    ]
    return torch.cat(
        [
            compact_cells(cells, dtype).flatten(-2),
            amount(own[..., :10], dtype),
            one_hot(own[..., 10], 0, 4, dtype),
            torch.stack([x.to(dtype) for x in scalars], -1),
            one_hot(own[..., 15], 0, ACTIONS, dtype),
            torch.stack(
                [own[..., 16].to(dtype) / 8, amount(own[..., 17], dtype), own[..., 18].to(dtype) / 255], -1
            ),
            bits(own[..., 19], dtype),
            compact_cells(faced, dtype),
            (faced[..., :1] == 0).to(dtype),
        ],
        -1,
    )


def dense_inputs(obs: Tensor, dtype: torch.dtype) -> Tensor:
    """Decodes dense observations, uint8 […, 11, 11, 24] → […, 3896]."""
    obs = numbers(obs)
    cell = obs.flatten(-3, -2)
    kind = cell[..., 0]
    agent, thing = kind == 1, (kind != 0) & (kind != 2)
    scalars = [
        agent * cell[..., 3].to(dtype) / 10,
        agent * cell[..., 1].to(dtype) / 15,
        thing * cell[..., 5].to(dtype) / 8,
        thing * cell[..., 6].to(dtype),
        agent * cell[..., 12].to(dtype) / 8,
    ]
    cells = torch.cat(
        [
            one_hot(kind, 1, KINDS, dtype),
            facing(cell[..., 4], agent, dtype),
            torch.stack(scalars, -1),
            thing.unsqueeze(-1) * amount(cell[..., 14:24], dtype),
        ],
        -1,
    )
    own = cell[..., CENTRE, :]
    return torch.cat(
        [
            cells.flatten(-2),
            own[..., 8:9].to(dtype) / 255,
            one_hot(own[..., 9], 0, ACTIONS, dtype),
            own[..., 10:11].to(dtype) / 8,
            amount(own[..., 11:12], dtype),
            bits(own[..., 13], dtype),
            one_hot(own[..., 4], 0, 4, dtype),
        ],
        -1,
    )


def tokens_to_dense(tokens: Tensor) -> Tensor:
    """Puts tokens (location r<<4 | c, feature, value), uint8 […, n, 3], back into dense uint8 […, 11, 11, 24].

    Tokens of no cell or no feature are dropped.
    """
    location, feature, value = numbers(tokens[..., 0]), numbers(tokens[..., 1]), tokens[..., 2]
    row, column = location >> 4, location & 15
    kept = (row < VIEW) & (column < VIEW) & (feature < 24)
    place = torch.where(kept, (row.long() * VIEW + column) * 24 + feature, CELLS * 24)
    dense = tokens.new_zeros(*tokens.shape[:-2], CELLS * 24 + 1)
    dense.scatter_(-1, place, value + (feature == 0).to(torch.uint8))
    return dense[..., :-1].unflatten(-1, (VIEW, VIEW, 24))


def token_inputs(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Decodes tokens, uint8 […, 200, 3] → […, 3896]."""
    return dense_inputs(tokens_to_dense(tokens), dtype)


LAYOUTS = {
    "compact": Layout(0, (COMPACT_BYTES,), COMPACT_COLUMNS, 32.0, compact_inputs),
    "dense": Layout(1, (VIEW, VIEW, DENSE_FEATURES), DENSE_COLUMNS, 32.0, dense_inputs),
    "tokens": Layout(2, (200, 3), DENSE_COLUMNS, 32.0, token_inputs),
}
