"""Tests the grid's input columns: their meaning, and the C kernel against torch."""

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.contracts.env import Leaf
from metta_fast.policy.grid.layout import (
    COMPACT_CELL,
    DENSE_CELL,
    KINDS,
    LAYOUTS,
    Channel,
    amount,
    facing,
    layout_of,
    token_inputs,
    tokens_to_dense,
)
from metta_fast.policy.grid.sparse_layer import SparseLayer
from tests.policy.specs import flat_spec, grid_obs, grid_spec

CENTRE, LEFT = 60, 59


def compact(**own: int) -> torch.Tensor:
    obs = torch.zeros(387, dtype=torch.uint8)
    for index, value in own.items():
        obs[363 + int(index[1:])] = value
    return obs


def inputs(kind: str, obs: torch.Tensor) -> dict[int, float]:
    """The columns that are not zero."""
    row = LAYOUTS[kind].decode(obs, torch.float32)
    return {int(i): round(float(row[i]), 4) for i in row.nonzero().flatten()}


OWN = 24 * 121
QUIET = {OWN + 10: 1.0, OWN + 19: 1.0, OWN + 63: 1.0}
"""Looking up, last action noop, an empty cell ahead."""


def test_an_empty_window_says_only_how_the_agent_stands() -> None:
    assert inputs("compact", compact()) == QUIET


def test_a_frozen_agent_of_group_3_looking_left_with_items_and_lasers() -> None:
    obs = compact()
    obs[3 * LEFT : 3 * LEFT + 3] = torch.tensor([1, 1 + 2 + 4 + 8 * 3, 3 + 16 * 1])
    cell = 24 * LEFT
    expected = {cell: 1.0, cell + 16: -1.0, cell + 17: 1.0, cell + 18: 0.2, cell + 19: 1.0, cell + 20: 0.5}
    assert inputs("compact", obs) == {**expected, **QUIET}


def test_a_busy_altar_with_a_heart_and_three_batteries() -> None:
    obs = compact()
    obs[:3] = torch.tensor([9, 1, 1 + 16 * 3])
    assert inputs("compact", obs) == {8: 1.0, 21: 1.0, 22: 0.5, 23: 1.0, **QUIET}


def test_a_wall_is_only_a_wall() -> None:
    obs = compact()
    obs[:3] = torch.tensor([2, 0, 0])
    assert inputs("compact", obs) == {1: 1.0, **QUIET}


def test_own_bytes() -> None:
    obs = compact(
        _0=3, _6=255, _10=3, _11=5, _12=15, _13=8, _14=4, _15=5, _16=8, _17=15, _18=255, _19=130, _20=2
    )
    expected = {0: 1, 6: 4, 13: 1, 14: 1, 15: 0.5, 16: 1, 17: 1, 18: 0.5, 24: 1, 28: 1, 29: 2, 30: 1, 32: 1}
    expected |= {38: 1, 40: 1}
    assert inputs("compact", obs) == {OWN + column: value for column, value in expected.items()}


def test_dense_columns() -> None:
    obs = torch.zeros(11, 11, 24, dtype=torch.uint8)
    obs[0, 1, [0, 5, 6, 14]] = torch.tensor([6, 2, 1, 3], dtype=torch.uint8)  # red generator
    obs[5, 5, [0, 1, 3, 4, 5, 12, 20]] = torch.tensor([1, 3, 10, 1, 8, 8, 15], dtype=torch.uint8)
    obs[5, 5, [8, 9, 10, 11, 13]] = torch.tensor([255, 2, 8, 3, 1], dtype=torch.uint8)
    there, centre, own = 32, 32 * CENTRE, 32 * 121
    assert inputs("dense", obs) == {
        there + 5: 1.0, there + 19: 0.25, there + 20: 1.0, there + 22: 1.0,
        centre: 1.0, centre + 15: 1.0, centre + 17: 1.0, centre + 18: 0.2, centre + 19: 1.0, centre + 21: 1.0,
        centre + 28: 2.0, own: 1.0, own + 3: 1.0, own + 10: 1.0, own + 11: 1.0, own + 12: 1.0, own + 21: 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "table"), [("compact", COMPACT_CELL), ("dense", DENSE_CELL)])
def test_the_tables_of_cells_say_what_is_decoded(kind: str, table: tuple[Channel, ...]) -> None:
    """From these tables Triton's kernels are generated."""
    obs = torch.randint(0, 256, (256, *LAYOUTS[kind].shape), generator=torch.Generator().manual_seed(0))
    cells = obs.view(256, -1)[:, : 363 if kind == "compact" else None].view(256, 121, -1)
    cells[..., 0] %= 17
    decoded = LAYOUTS[kind].decode(obs.to(torch.uint8), torch.float32)
    columns = decoded[:, : 121 * (KINDS + len(table))].view(256, 121, -1)
    things = cells[..., 0]
    here = {
        "agent": (things == 1) & (cells[..., 1] > 0) if kind == "compact" else things == 1,
        "converter": (things >= 3) & (things <= 14),
        "thing": (things != 0) & (things != 2),
    }
    for column, (who, how, divisor, byte, less, shift, bits) in enumerate(table, KINDS):
        n = (cells[..., byte] - less) >> shift & (1 << bits) - 1
        if how in ("rows", "columns"):
            wanted = facing(n, here[who], torch.float32)[..., int(how == "columns")]
        else:
            values = {"scaled": n / divisor, "amount": amount(n, torch.float32), "some": (n != 0).float()}
            wanted = here[who] * values[how]
        assert torch.equal(columns[..., column], wanted), column


def test_tokens_say_what_dense_says() -> None:
    tokens, dense = grid_obs("tokens", 64), grid_obs("dense", 64)
    whole = (tokens[:, -1] == 255).all(-1)  # nothing was dropped
    assert whole.sum() > 32
    assert torch.equal(tokens_to_dense(tokens)[whole], dense[whole])
    assert torch.equal(
        token_inputs(tokens[whole], torch.float32), LAYOUTS["dense"].decode(dense[whole], torch.float32)
    )


def test_empty_and_foreign_tokens_are_ignored() -> None:
    tokens = torch.full((200, 3), 255, dtype=torch.uint8)
    tokens[1] = torch.tensor([0xB0, 0, 3])  # a row outside the window
    tokens[2] = torch.tensor([0x00, 24, 3])  # no such feature
    assert tokens_to_dense(tokens).sum() == 0


@pytest.mark.parametrize("kind", list(LAYOUTS))
@given(
    seed=st.integers(0, 2**32),
    high=st.sampled_from([3, 16, 256]),
    rows=st.integers(0, 5),
    width=st.sampled_from([1, 64, 70, 128]),
)
def test_the_kernel_computes_what_torch_computes(
    kind: str, seed: int, high: int, rows: int, width: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    layer = fresh(kind, width)
    obs = torch.randint(0, high, (2, rows, *LAYOUTS[kind].shape), generator=g).to(torch.uint8)
    same(layer, obs)


@pytest.mark.parametrize("kind", list(LAYOUTS))
@pytest.mark.parametrize("threads", [1, 3])
def test_the_kernel_on_real_observations_and_threads(kind: str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        same(fresh(kind, 192), grid_obs(kind, 800))
    finally:
        torch.set_num_threads(before)


@cache
def fresh(kind: str, width: int) -> SparseLayer:
    torch.manual_seed(1)
    layer = SparseLayer(LAYOUTS[kind], width)
    torch.nn.init.normal_(layer.bias)
    return layer


def same(layer: SparseLayer, obs: torch.Tensor) -> None:
    fast, plain = layer(obs), layer.decoded(obs)
    assert fast.shape == plain.shape
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-3)
    pull = torch.randn(fast.shape, generator=torch.Generator().manual_seed(0))
    for one, two in zip(gradients(fast, pull, layer), gradients(plain, pull, layer)):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-3)


def gradients(out: torch.Tensor, pull: torch.Tensor, layer: SparseLayer) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad((out * pull).sum(), [layer.weight, layer.bias])


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(LAYOUTS))
def test_decoding_by_torch_compiles_whole(kind: str) -> None:
    """What runs on a GPU, here under the CPU's bf16 autocast."""
    layer, obs = fresh(kind, 64), grid_obs(kind, 32)
    with torch.autocast("cpu", torch.bfloat16):
        plain = layer.decoded(obs)
        compiled = torch.compile(layer.decoded, fullgraph=True, dynamic=False)(obs)
    assert plain.dtype == compiled.dtype == torch.bfloat16
    torch.testing.assert_close(compiled, plain, rtol=0.02, atol=0.05)


def test_the_first_outputs_have_about_unit_scale() -> None:
    for kind in LAYOUTS:
        assert 0.5 < SparseLayer(LAYOUTS[kind], 128)(grid_obs(kind, 256)).std() < 2.0


def test_a_wrong_observation_is_refused_before_the_kernel_reads_it() -> None:
    with pytest.raises(ValueError, match=r"expected \[rows, 387\] uint8"):
        SparseLayer(LAYOUTS["compact"], 8)(torch.zeros(4, 386, dtype=torch.uint8))


def test_which_leaves_are_the_grids() -> None:
    assert layout_of(grid_spec("compact"), "obs") is LAYOUTS["compact"]
    assert layout_of(flat_spec(compact=Leaf((387,), "uint8")), "compact") is LAYOUTS["compact"]
    assert layout_of(flat_spec(obs=Leaf((387,), "uint8")), "obs") is None  # 387 bytes of someone else
    assert layout_of(flat_spec(compact=Leaf((387,), "float32")), "compact") is None
