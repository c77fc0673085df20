"""The Triton first layer over compact observations in 16 bits, against a float64 product of decoded inputs.

As test_gpu_sparse.py: on a GPU in both dtypes, else in fp16 under Triton's interpreter in a process of its own:

    TRITON_INTERPRET=1 python -m pytest tests/policy/test_gpu_cells.py
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from metta_fast.policy.grid.layout import LAYOUTS
from tests.interpreter import DEVICE, ON_GPU, elsewhere, gpu, kernels, run_interpreted
from tests.policy.test_gpu_sparse import case, close, every_byte, exact, played

DTYPES = [torch.float16, pytest.param(torch.bfloat16, marks=gpu)]


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "-k", "cells_")


def found(
    obs: Tensor, weight: Tensor, bias: Tensor, grad: Tensor, numbers: Tensor | None = None
) -> list[Tensor]:
    from metta_fast.policy.grid.triton import compact_operator as gpu_compact

    obs, weight, bias, grad = (x.to(DEVICE) for x in (obs, weight, bias, grad))
    numbers = None if numbers is None else numbers.to(DEVICE)
    cells = gpu_compact.cells(obs, grad.dtype, numbers)
    out = gpu_compact.forward(*cells, weight, bias, len(grad))
    return [x.cpu() for x in (out, *gpu_compact.gradient(*cells, grad))]


@kernels
def test_cells_are_the_bytes_of_rows() -> None:
    """Of rows of every alignment; the last ends the memory that the observations have."""
    from metta_fast.policy.grid.triton import compact_operator as gpu_compact

    obs = torch.randint(0, 256, (70, 387), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    rows = torch.tensor([69, *range(70), 3])
    cells, _, seen = gpu_compact.cells(obs.to(DEVICE), torch.float16, rows.to(DEVICE))
    planes = cells[: len(rows)].cpu().view(torch.uint8).view(-1, 3, 128)
    wanted = torch.zeros(len(rows), 3, 128, dtype=torch.uint8)
    wanted[:, :, :121] = obs[rows, :363].view(-1, 121, 3).mT
    wanted[:, :, 121] = obs[rows, 383:386]
    assert torch.equal(planes, wanted)
    for tile, kinds in enumerate(planes[:, 0].split(gpu_compact.SEEN)):
        there = sum(1 << kind for kind in set(kinds.flatten().tolist()) if 0 < kind < 16)
        assert int(seen[tile]) & there == there


@kernels
@pytest.mark.parametrize("dtype", DTYPES)
def test_cells_give_each_byte_its_meaning(dtype: torch.dtype) -> None:
    given = case("compact", every_byte(LAYOUTS["compact"])[:: 1 if ON_GPU else 6], 16, dtype)
    close(found(*given), exact("compact", *given), dtype)


@kernels
@pytest.mark.parametrize("dtype", DTYPES)
def test_cells_of_each_byte_are_rounded_as_torch_does(dtype: torch.dtype) -> None:
    """One weight at a time: an output is an input."""
    from metta_fast.policy.grid.triton import compact_operator as gpu_compact

    obs = every_byte(LAYOUTS["compact"])
    weight = torch.zeros(2968, 128)
    picks = torch.arange(0, 2968, 37)
    weight[picks, torch.arange(len(picks))] = 1
    cells = gpu_compact.cells(obs.to(DEVICE), dtype)
    out = gpu_compact.forward(*cells, weight.to(DEVICE), torch.zeros(128, device=DEVICE), len(obs)).cpu()
    wanted = LAYOUTS["compact"].decode(obs, torch.float32)[:, picks]
    torch.testing.assert_close(out[:, : len(picks)].float(), wanted, rtol=2**-8, atol=1e-6)


@kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "width"),
    [
        (1, 16),
        (70, 24),
        pytest.param(1000, 130, marks=gpu),
        pytest.param(8192, 128, marks=gpu),
        pytest.param(20001, 256, marks=gpu),
        pytest.param(32768, 32, marks=gpu),
        pytest.param(32768, 64, marks=gpu),
        pytest.param(32768, 128, marks=gpu),
        pytest.param(40000, 128, marks=gpu),
    ],
)
def test_cells_on_games(rows: int, width: int, dtype: torch.dtype) -> None:
    given = case("compact", played("compact", rows), width, dtype)
    close(found(*given), exact("compact", *given), dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_cells_of_rows_apart_and_of_splits() -> None:
    """Rows as a slice of wider ones; more rows than one split of the gradient, and kinds that differ by split."""
    obs = played("compact", 516)
    obs[:512, 0] = 4
    obs[512:] = 0
    obs[512:, 0] = 7
    wide = torch.cat([obs, torch.full((len(obs), 5), 255, dtype=torch.uint8)], 1).to(DEVICE)
    given = case("compact", obs, 16, torch.float16)
    close(found(wide[:, :387], *given[1:]), exact("compact", *given), torch.float16)


@kernels
@pytest.mark.parametrize("numbers", [torch.int32, pytest.param(torch.int64, marks=gpu)])
def test_cells_of_numbered_rows(numbers: torch.dtype) -> None:
    """Any order, some twice, some never."""
    obs = played("compact", 50)
    rows = torch.randint(len(obs), (67,), generator=torch.Generator().manual_seed(1)).to(numbers)
    given = case("compact", obs[rows.long()], 16, torch.float16)
    close(found(obs, *given[1:], rows), exact("compact", *given), torch.float16)


@kernels
def test_cells_of_no_rows() -> None:
    out, grad_weight, grad_bias = found(*case("compact", played("compact", 1)[:0], 16, torch.float16))
    assert out.shape == (0, 16)
    assert not grad_weight.any()
    assert not grad_bias.any()


@kernels
def test_cells_refuse_what_does_not_fit() -> None:
    from metta_fast.policy.grid.triton import compact_operator as gpu_compact

    obs, weight, bias = (x.to(DEVICE) for x in case("compact", played("compact", 2), 16, torch.float16)[:3])
    with pytest.raises(ValueError, match="expected \\[rows, 387\\] uint8"):
        gpu_compact.cells(obs[:, 1:], torch.float16)
    with pytest.raises(ValueError, match="expected \\[rows\\] int64 or int32"):
        gpu_compact.cells(obs, torch.float16, torch.zeros(2))
    with pytest.raises(ValueError, match="expected \\[2968, 16\\]"):
        gpu_compact.forward(*gpu_compact.cells(obs, torch.float16), weight[1:], bias, 2)
