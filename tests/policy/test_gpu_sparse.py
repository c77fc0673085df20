"""The Triton first layer, forward and backward, against a float64 product of decoded inputs.

On a GPU in every dtype; else under Triton's interpreter, which has no bf16 products, in float32 and fp16, in a process
of its own, as it is chosen at import:

    TRITON_INTERPRET=1 python -m pytest tests/policy/test_gpu_sparse.py
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from metta_fast.policy.grid.layout import LAYOUTS, Layout, tokens_to_dense
from tests.interpreter import DEVICE, ON_GPU, elsewhere, gpu, kernels, run_interpreted
from tests.policy.specs import grid_obs

pytestmark = pytest.mark.usefixtures("exact_products")
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}
"""‖found − exact‖ / ‖exact‖, where exact multiplies inputs and weights as they are rounded."""


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "-k", "triton")


def every_byte(layout: Layout) -> Tensor:
    """uint8 [256, bytes]: each place takes each value once."""
    places = torch.arange(torch.Size(layout.shape).numel())
    return ((torch.arange(256).unsqueeze(1) + 37 * places) % 256).to(torch.uint8)


def played(kind: str, rows: int) -> Tensor:
    """uint8 [rows, bytes] of real games."""
    return grid_obs(kind, min(rows, 512)).flatten(1).repeat(rows // 512 + 1, 1)[:rows]


def case(kind: str, obs: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(width)
    weight = torch.randn(LAYOUTS[kind].columns, width, generator=g) / 16
    bias = torch.randn(width, generator=g)
    return obs, weight, bias, torch.randn(len(obs), width, generator=g).to(dtype)


def exact(kind: str, obs: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> list[Tensor]:
    """Output and gradients of weight and bias, float64, inputs and weights rounded to grad's dtype."""
    inputs = LAYOUTS[kind].decode(obs.view(-1, *LAYOUTS[kind].shape), torch.float32).to(grad.dtype).double()
    grad64 = grad.double()
    return [
        inputs @ weight.to(grad.dtype).double() + bias.double(),
        inputs.t() @ grad64,
        grad64.sum(0),
    ]


def found(
    obs: Tensor, weight: Tensor, bias: Tensor, grad: Tensor, numbers: Tensor | None = None
) -> list[Tensor]:
    from metta_fast.policy.grid.triton import layer_operator as gpu_sparse

    obs, weight, bias, grad = (x.to(DEVICE) for x in (obs, weight, bias, grad))
    numbers = None if numbers is None else numbers.to(DEVICE)
    out, seen = gpu_sparse.forward(obs, weight, bias, grad.dtype, numbers)
    grad_weight, grad_bias = gpu_sparse.gradient(obs, grad, seen, len(weight), numbers)
    return [out.cpu(), grad_weight.cpu(), grad_bias.cpu()]


def close(given: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    for name, one, two in zip(("out", "weight's gradient", "bias's gradient"), given, wanted):
        limit = ROUNDING[dtype if name == "out" else torch.float32]
        difference = (one.double() - two).norm() / two.norm()
        assert difference < limit, f"{name}: {float(difference)}"


@kernels
@pytest.mark.parametrize(
    "dtype", [torch.float16, *(pytest.param(x, marks=gpu) for x in (torch.float32, torch.bfloat16))]
)
@pytest.mark.parametrize("kind", ["compact", "dense"])
def test_triton_gives_each_byte_its_meaning(kind: str, dtype: torch.dtype) -> None:
    given = case(kind, every_byte(LAYOUTS[kind])[:: 1 if ON_GPU else 6], 16, dtype)
    close(found(*given), exact(kind, *given), dtype)


@kernels
@pytest.mark.parametrize(
    ("rows", "width"),
    [
        (35, 24),
        pytest.param(1, 16, marks=gpu),
        pytest.param(1000, 130, marks=gpu),
        pytest.param(8192, 128, marks=gpu),
        pytest.param(20001, 256, marks=gpu),
        pytest.param(32768, 32, marks=gpu),
        pytest.param(32768, 64, marks=gpu),
        pytest.param(32768, 128, marks=gpu),
    ],
)
@pytest.mark.parametrize("kind", ["compact", "dense"])
def test_triton_on_games(kind: str, rows: int, width: int) -> None:
    dtype = torch.bfloat16 if ON_GPU else torch.float16
    given = case(kind, played(kind, rows), width, dtype)
    close(found(*given), exact(kind, *given), dtype)


@kernels
@pytest.mark.parametrize("kind", ["compact", pytest.param("dense", marks=gpu)])
def test_triton_reads_rows_apart_and_sums_splits(kind: str) -> None:
    """Rows as a slice of wider ones; more rows than one split of the gradient, and kinds that differ by split."""
    obs = played(kind, 516)
    obs[:512, 0] = 4
    obs[512:] = 0
    obs[512:, 0] = 7
    wide = torch.cat([obs, torch.full((len(obs), 5), 255, dtype=torch.uint8)], 1).to(DEVICE)
    given = case(kind, obs, 16, torch.float16)
    close(found(wide[:, : obs.shape[1]], *given[1:]), exact(kind, *given), torch.float16)


@kernels
@pytest.mark.parametrize(
    ("numbers", "count"), [(torch.int32, 67), pytest.param(torch.int64, 1025, marks=gpu)]
)
@pytest.mark.parametrize("kind", ["compact", pytest.param("dense", marks=gpu)])
def test_triton_reads_numbered_rows_where_they_lie(kind: str, numbers: torch.dtype, count: int) -> None:
    """Any order, some twice, some never; more than a tile, and on a GPU than a split."""
    obs = played(kind, 50)
    rows = torch.randint(len(obs), (count,), generator=torch.Generator().manual_seed(1)).to(numbers)
    given = case(kind, obs[rows.long()], 16, torch.float16)
    close(found(obs, *given[1:], rows), exact(kind, *given), torch.float16)


@kernels
def test_triton_puts_numbered_tokens_back() -> None:
    from metta_fast.policy.grid.triton import layer_operator as gpu_sparse

    tokens = grid_obs("tokens", 16)
    rows = torch.tensor([3, 15, 3, 0])
    dense = gpu_sparse.dense_of_tokens(tokens.flatten(1).to(DEVICE), rows.to(DEVICE)).cpu()
    assert torch.equal(dense, tokens_to_dense(tokens[rows]).flatten(1))


@kernels
def test_triton_without_rows_in_float32() -> None:
    out, grad_weight, grad_bias = found(*case("compact", played("compact", 1)[:0], 16, torch.float32))
    assert out.shape == (0, 16)
    assert not grad_weight.any()
    assert not grad_bias.any()


@kernels
def test_triton_puts_tokens_back() -> None:
    """Real ones, and any bytes: of tokens that say the same the last counts."""
    from metta_fast.policy.grid.triton import layer_operator as gpu_sparse

    g = torch.Generator().manual_seed(0)
    wild = torch.randint(0, 256, (8, 200, 3), generator=g).to(torch.uint8)
    wild[:4, :, 0] = wild[:4, :, 0] % 2
    tokens = torch.cat([grid_obs("tokens", 16), wild])
    dense = gpu_sparse.dense_of_tokens(tokens.flatten(1).to(DEVICE)).cpu()
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
def test_triton_refuses_what_does_not_fit() -> None:
    obs, weight, bias, _ = case("compact", played("compact", 2), 16, torch.float32)
    from metta_fast.policy.grid.triton import layer_operator as gpu_sparse

    with pytest.raises(ValueError, match="expected \\[rows, 387 or 2904\\] uint8"):
        gpu_sparse.forward(obs[:, 1:], weight, bias, torch.float32)
    with pytest.raises(ValueError, match="expected \\[2968, 16\\]"):
        gpu_sparse.forward(obs, weight[1:], bias, torch.float32)
    with pytest.raises(ValueError, match="expected \\[rows\\] int64 or int32"):
        gpu_sparse.forward(obs, weight, bias, torch.float32, torch.zeros(2))
