"""Checks the encoder of symbols beside a plain loop: vocabularies, values outside of them, places of cells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from metta_fast.config.encoders import encoder_memory
from metta_fast.config.encoding.symbol_layers import vocabularies
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.policy import Policy, make_policy
from metta_fast.policy.encoders import JoinedEncoder, MLPEncoder
from metta_fast.policy.encoding.symbols import SymbolEncoder, SymbolTable
from metta_fast.policy.plan import plan_of
from tests.policy.specs import flat_spec, random_obs

LEAVES = {
    "minigrid": Leaf((7, 7, 3), "uint8", "symbols", 2, ((0, 10), (0, 5), (0, 3))),
    "channels first": Leaf((2, 4, 5), "uint8", "symbols", 0, ((0, 8), (0, 255))),
    "signed": Leaf((3, 4), "int8", "symbols", None, ((-2, 1),)),
    "one axis": Leaf((6,), "int64", "symbols", None, ((100, 130),)),
    "unbounded": Leaf((2, 3), "int32", "symbols"),
}


def make(spec: EnvSpec, **keys: object) -> Policy:
    keys = {"hidden_size": 16, "symbol_encoder": "embedding"} | keys
    return make_policy(PolicyConfig(**keys), spec)  # type: ignore[arg-type]


def plain(table: SymbolTable, leaf: Leaf, symbols: np.ndarray) -> list[list[float]]:
    """One cell and channel at a time, from the documentation alone."""
    sides = [n for i, n in enumerate(leaf.shape) if i != leaf.channel_axis]
    rows = []
    for cell in itertools.product(*map(range, sides)):
        total, begin = torch.zeros(table.table.embedding_dim), 0
        for channel, (first, size) in enumerate(vocabularies(leaf)):
            place = list(cell)
            if leaf.channel_axis is not None:
                place.insert(leaf.channel_axis, channel)
            at = int(symbols[tuple(place)])
            total = total + table.table.weight[begin + min(max(at - first, 0), size - 1)]
            begin += size
        rows.append(total.clamp(min=0))
    return torch.stack(rows)  # type: ignore[return-value]


def values(leaf: Leaf, rows: int) -> Tensor:
    """All values of the dtype, the smallest and the largest among them."""
    rng, limits = np.random.default_rng(0), np.iinfo(leaf.dtype)
    near = rng.integers(leaf.bounds[0][0], leaf.bounds[0][1] + 1, (rows, *leaf.shape), dtype=np.int64)
    far = rng.integers(limits.min, limits.max, (rows, *leaf.shape), dtype=leaf.dtype)
    mixed = np.where(rng.random(near.shape) < 0.7, near.astype(leaf.dtype), far)
    mixed[0] = limits.max
    mixed[1] = limits.min
    return torch.from_numpy(mixed)


@pytest.mark.parametrize("name", LEAVES)
def test_a_table_equals_a_plain_loop(name: str) -> None:
    leaf = LEAVES[name]
    torch.manual_seed(0)
    table = SymbolTable(leaf)
    symbols = values(leaf, 6)
    for row, out in zip(symbols.numpy(), table(symbols)):
        torch.testing.assert_close(out, plain(table, leaf, row))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 10), (0, 11)),
        ((-2, 1), (-2, 4)),
        ((0, 255), (0, 256)),
        ((0, 1000), (0, 256)),
        ((-100, 1000), (-100, 256)),
        ((-(2**31), 2**31 - 1), (0, 256)),
        ((-(2**31), -5), (-260, 256)),
        ((-1000, 3), (-252, 256)),
        ((7, 7), (7, 1)),
    ],
)
def test_a_vocabulary_is_no_larger_than_the_bounds(
    bounds: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert vocabularies(Leaf((4, 4), "int32", "symbols", bounds=(bounds,))) == [expected]


@pytest.mark.parametrize("name", LEAVES)
def test_the_estimate_has_every_weight(name: str) -> None:
    spec = flat_spec(obs=LEAVES[name])
    policy = make(spec)
    assert type(policy.encoder) is SymbolEncoder
    config = PolicyConfig(hidden_size=16, symbol_encoder="embedding")
    assert encoder_memory(config, spec).weights == sum(p.numel() for p in policy.encoder.parameters())
    assert plan_of(policy) == "the encoder SymbolEncoder"  # the fast paths for flat observations stand back


def test_symbols_are_joined_with_other_leaves_and_keep_their_places() -> None:
    spec = flat_spec(map=LEAVES["minigrid"], pose=Leaf((5,), "float32"), sign=LEAVES["signed"])
    policy = make(spec, core="mingru", shared=False)
    assert isinstance(policy.encoder, JoinedEncoder)
    assert policy.encoder.leaves == {"symbols": ("map", "sign"), "flat": ("pose",)}
    obs = {
        name: leaf % 4 if leaf.dtype != torch.float32 else leaf
        for name, leaf in random_obs(spec, 2, 3).items()
    }

    def params(obs: dict[str, Tensor]) -> Tensor:
        return policy(obs, policy.initial_state(3), torch.zeros(2, 3, dtype=torch.bool)).params

    before = params(obs)
    for name in obs:
        assert not torch.equal(params(obs | {name: torch.zeros_like(obs[name])}), before)
    turned = obs["map"].transpose(-2, -3).contiguous()
    assert not torch.equal(params(obs | {"map": turned}), before)


def test_without_the_key_they_are_plain_numbers_as_before() -> None:
    """Policies of older runs, and of our own environments: bit for bit those of a leaf without a kind."""
    made = []
    for leaf in (LEAVES["minigrid"], Leaf((7, 7, 3), "uint8")):
        torch.manual_seed(0)
        made.append(make(flat_spec(obs=leaf), symbol_encoder="flat"))
        assert type(made[-1].encoder) is MLPEncoder
    assert all(torch.equal(a, b) for a, b in zip(*(policy.state_dict().values() for policy in made)))
