"""The Triton first layer, forward and backward, against a float64 product of decoded inputs.

In its three forms: over the bytes of compact and of dense observations, and over compact cells in order ("cells", in 16
bits only). On a GPU in every dtype; else under Triton's interpreter, which has no bf16 products, in processes of their
own, as it is chosen at import:

    TRITON_INTERPRET=1 python -m pytest tests/policy/test_gpu_first_layer.py
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metta_fast.policy.grid.layout import LAYOUTS, Layout, tokens_to_dense
from tests.interpreter import DEVICE, ON_GPU, elsewhere, gpu, kernels, run_interpreted
from tests.policy.specs import grid_obs

pytestmark = pytest.mark.usefixtures("exact_products")
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}
"""‖found − exact‖ / ‖exact‖, where exact multiplies inputs and weights as they are rounded."""
DTYPES = {
    "compact": [torch.float16, torch.float32, torch.bfloat16],
    "dense": [torch.float16, torch.float32, torch.bfloat16],
    "cells": [torch.float16, torch.bfloat16],
}
"""Each form's; all but fp16 on a GPU only."""
GAMES = [(1000, 130), (8192, 128), (20001, 256), (32768, 32), (32768, 64), (32768, 128)]
"""Rows and widths on a GPU."""


def on_gpu(*values: Any) -> Any:
    return pytest.param(*values, marks=gpu)


@elsewhere
@pytest.mark.parametrize("which", ["triton and not cells", "triton and cells"])
def test_in_the_interpreter(which: str) -> None:
    run_interpreted(__file__, "-k", which)


def layout_of(form: str) -> Layout:
    return LAYOUTS["compact" if form == "cells" else form]


def every_byte(form: str) -> Tensor:
    """uint8 [256, bytes]: each place takes each value once."""
    places = torch.arange(torch.Size(layout_of(form).shape).numel())
    return ((torch.arange(256).unsqueeze(1) + 37 * places) % 256).to(torch.uint8)


def played(form: str, rows: int) -> Tensor:
    """uint8 [rows, bytes] of real games."""
    kind = "compact" if form == "cells" else form
    return grid_obs(kind, min(rows, 512)).flatten(1).repeat(rows // 512 + 1, 1)[:rows]


def case(form: str, obs: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(width)
    weight = torch.randn(layout_of(form).columns, width, generator=g) / 16
    bias = torch.randn(width, generator=g)
    return obs, weight, bias, torch.randn(len(obs), width, generator=g).to(dtype)


def exact(form: str, obs: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> list[Tensor]:
    """Output and gradients of weight and bias, float64, inputs and weights rounded to grad's dtype."""
    layout = layout_of(form)
    inputs = layout.decode(obs.view(-1, *layout.shape), torch.float32).to(grad.dtype).double()
    grad64 = grad.double()
    return [
        inputs @ weight.to(grad.dtype).double() + bias.double(),
        inputs.t() @ grad64,
        grad64.sum(0),
    ]


def found(
    form: str, obs: Tensor, weight: Tensor, bias: Tensor, grad: Tensor, numbers: Tensor | None = None
) -> list[Tensor]:
    from metta_fast.policy.grid.triton import compact_operator, layer_operator

    obs, weight, bias, grad = (x.to(DEVICE) for x in (obs, weight, bias, grad))
    numbers = None if numbers is None else numbers.to(DEVICE)
    if form == "cells":
        cells = compact_operator.cells(obs, grad.dtype, numbers)
        out = compact_operator.forward(*cells, weight, bias, len(grad))
        return [x.cpu() for x in (out, *compact_operator.gradient(*cells, grad))]
    out, seen = layer_operator.forward(obs, weight, bias, grad.dtype, numbers)
    return [x.cpu() for x in (out, *layer_operator.gradient(obs, grad, seen, len(weight), numbers))]


def close(given: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    for name, one, two in zip(("out", "weight's gradient", "bias's gradient"), given, wanted):
        limit = ROUNDING[dtype if name == "out" else torch.float32]
        difference = (one.double() - two).norm() / two.norm()
        assert difference < limit, f"{name}: {float(difference)}"


@kernels
@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        (form, dtype) if dtype == torch.float16 else on_gpu(form, dtype)
        for form, dtypes in DTYPES.items()
        for dtype in dtypes
    ],
)
def test_triton_gives_each_byte_its_meaning(form: str, dtype: torch.dtype) -> None:
    given = case(form, every_byte(form)[:: 1 if ON_GPU else 6], 16, dtype)
    close(found(form, *given), exact(form, *given), dtype)


@kernels
@pytest.mark.parametrize(
    ("form", "rows", "width", "dtype"),
    [
        *((form, 35, 24, torch.bfloat16 if ON_GPU else torch.float16) for form in ("compact", "dense")),
        *(
            on_gpu(form, *shape, torch.bfloat16)
            for form in ("compact", "dense")
            for shape in [(1, 16), *GAMES]
        ),
        ("cells", 1, 16, torch.float16),
        ("cells", 70, 24, torch.float16),
        *(on_gpu("cells", *shape, torch.float16) for shape in [*GAMES, (40000, 128)]),
        *(on_gpu("cells", *shape, torch.bfloat16) for shape in [(1, 16), (70, 24), *GAMES, (40000, 128)]),
    ],
)
def test_triton_on_games(form: str, rows: int, width: int, dtype: torch.dtype) -> None:
    given = case(form, played(form, rows), width, dtype)
    close(found(form, *given), exact(form, *given), dtype)


@kernels
@pytest.mark.parametrize("form", ["compact", on_gpu("dense"), on_gpu("cells")])
def test_triton_reads_rows_apart_and_sums_splits(form: str) -> None:
    """Rows as a slice of wider ones; more rows than one split of the gradient, and kinds that differ by split."""
    obs = played(form, 516)
    obs[:512, 0] = 4
    obs[512:] = 0
    obs[512:, 0] = 7
    wide = torch.cat([obs, torch.full((len(obs), 5), 255, dtype=torch.uint8)], 1).to(DEVICE)
    given = case(form, obs, 16, torch.float16)
    close(found(form, wide[:, : obs.shape[1]], *given[1:]), exact(form, *given), torch.float16)


@kernels
@pytest.mark.parametrize(("numbers", "count"), [(torch.int32, 67), on_gpu(torch.int64, 1025)])
@pytest.mark.parametrize("form", ["compact", on_gpu("dense"), "cells"])
def test_triton_reads_numbered_rows_where_they_are(form: str, numbers: torch.dtype, count: int) -> None:
    """Any order, some twice, some never; more than a tile, and on a GPU than a split."""
    obs = played(form, 50)
    rows = torch.randint(len(obs), (count,), generator=torch.Generator().manual_seed(1)).to(numbers)
    given = case(form, obs[rows.long()], 16, torch.float16)
    close(found(form, obs, *given[1:], rows), exact(form, *given), torch.float16)


@kernels
@pytest.mark.parametrize(("form", "dtype"), [("compact", torch.float32), ("cells", torch.float16)])
def test_triton_without_rows(form: str, dtype: torch.dtype) -> None:
    out, grad_weight, grad_bias = found(form, *case(form, played(form, 1)[:0], 16, dtype))
    assert out.shape == (0, 16)
    assert not grad_weight.any()
    assert not grad_bias.any()


@kernels
def test_triton_puts_the_bytes_of_rows_in_cells() -> None:
    """Of rows of every alignment; the last ends the memory that the observations have."""
    from metta_fast.policy.grid.triton import compact_operator

    obs = torch.randint(0, 256, (70, 387), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    rows = torch.tensor([69, *range(70), 3])
    cells, _, seen = compact_operator.cells(obs.to(DEVICE), torch.float16, rows.to(DEVICE))
    planes = cells[: len(rows)].cpu().view(torch.uint8).view(-1, 3, 128)
    wanted = torch.zeros(len(rows), 3, 128, dtype=torch.uint8)
    wanted[:, :, :121] = obs[rows, :363].view(-1, 121, 3).mT
    wanted[:, :, 121] = obs[rows, 383:386]
    assert torch.equal(planes, wanted)
    for tile, kinds in enumerate(planes[:, 0].split(compact_operator.SEEN)):
        there = sum(1 << kind for kind in set(kinds.flatten().tolist()) if 0 < kind < 16)
        assert int(seen[tile]) & there == there


@kernels
@pytest.mark.parametrize("dtype", [torch.float16, on_gpu(torch.bfloat16)])
def test_triton_rounds_cells_of_each_byte_as_torch_does(dtype: torch.dtype) -> None:
    """One weight at a time: an output is an input."""
    from metta_fast.policy.grid.triton import compact_operator

    obs = every_byte("cells")
    weight = torch.zeros(2968, 128)
    picks = torch.arange(0, 2968, 37)
    weight[picks, torch.arange(len(picks))] = 1
    cells = compact_operator.cells(obs.to(DEVICE), dtype)
    out = compact_operator.forward(*cells, weight.to(DEVICE), torch.zeros(128, device=DEVICE), len(obs)).cpu()
    wanted = LAYOUTS["compact"].decode(obs, torch.float32)[:, picks]
    torch.testing.assert_close(out[:, : len(picks)].float(), wanted, rtol=2**-8, atol=1e-6)


@kernels
def test_triton_puts_numbered_tokens_back() -> None:
    from metta_fast.policy.grid.triton import layer_operator

    tokens = grid_obs("tokens", 16)
    rows = torch.tensor([3, 15, 3, 0])
    dense = layer_operator.dense_of_tokens(tokens.flatten(1).to(DEVICE), rows.to(DEVICE)).cpu()
    assert torch.equal(dense, tokens_to_dense(tokens[rows]).flatten(1))


@kernels
def test_triton_puts_tokens_back() -> None:
    """Real ones, and any bytes: of tokens that say the same the last counts."""
    from metta_fast.policy.grid.triton import layer_operator

    g = torch.Generator().manual_seed(0)
    wild = torch.randint(0, 256, (8, 200, 3), generator=g).to(torch.uint8)
    wild[:4, :, 0] = wild[:4, :, 0] % 2
    tokens = torch.cat([grid_obs("tokens", 16), wild])
    dense = layer_operator.dense_of_tokens(tokens.flatten(1).to(DEVICE)).cpu()
    wanted = torch.stack([last_of_tokens(row) for row in tokens])
    assert torch.equal(dense, wanted)
    assert torch.equal(dense[:16], tokens_to_dense(tokens[:16]).flatten(1))


def last_of_tokens(tokens: Tensor) -> Tensor:
    dense = torch.zeros(121 * 24, dtype=torch.uint8)
    for location, feature, value in tokens.tolist():
        if location >> 4 < 11 and location & 15 < 11 and feature < 24:
            dense[((location >> 4) * 11 + (location & 15)) * 24 + feature] = (value + (feature == 0)) % 256
    return dense


@kernels
def test_triton_refuses_bytes_that_do_not_fit() -> None:
    from metta_fast.policy.grid.triton import layer_operator

    obs, weight, bias, _ = case("compact", played("compact", 2), 16, torch.float32)
    with pytest.raises(ValueError, match="expected \\[rows, 387 or 2904\\] uint8"):
        layer_operator.forward(obs[:, 1:], weight, bias, torch.float32)
    with pytest.raises(ValueError, match="expected \\[2968, 16\\]"):
        layer_operator.forward(obs, weight[1:], bias, torch.float32)
    with pytest.raises(ValueError, match="expected \\[rows\\] int64 or int32"):
        layer_operator.forward(obs, weight, bias, torch.float32, torch.zeros(2))


@kernels
def test_triton_refuses_cells_that_do_not_fit() -> None:
    from metta_fast.policy.grid.triton import compact_operator

    obs, weight, bias = (x.to(DEVICE) for x in case("cells", played("cells", 2), 16, torch.float16)[:3])
    with pytest.raises(ValueError, match="expected \\[rows, 387\\] uint8"):
        compact_operator.cells(obs[:, 1:], torch.float16)
    with pytest.raises(ValueError, match="expected \\[rows\\] int64 or int32"):
        compact_operator.cells(obs, torch.float16, torch.zeros(2))
    with pytest.raises(ValueError, match="expected \\[2968, 16\\]"):
        compact_operator.forward(*compact_operator.cells(obs, torch.float16), weight[1:], bias, 2)
