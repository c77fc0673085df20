"""Picking rows of bytes: on a GPU, else under Triton's interpreter in a process of its own:

TRITON_INTERPRET=1 python -m pytest tests/ppo/test_gpu_gather.py
"""

from __future__ import annotations

import pytest
import torch

from tests.interpreter import DEVICE, elsewhere, kernels, run_interpreted


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__)


@kernels
@pytest.mark.parametrize("shape", [(387,), (4,), (5,), (6, 1), (200, 3), (11, 11, 24)])
@pytest.mark.parametrize("numbers", [torch.int32, torch.int64])
def test_rows_are_those_of_index_select(shape: tuple[int, ...], numbers: torch.dtype) -> None:
    from metta_fast.algorithms.ppo.triton.gather_rows import fits, gather_rows

    g = torch.Generator().manual_seed(0)
    flat = torch.randint(0, 256, (40, *shape), generator=g).to(torch.uint8)
    for rows in (
        torch.randint(0, 40, (52,), generator=g),
        torch.tensor([39, 39, 0, 39]),
        torch.empty(0).long(),
    ):
        assert fits(flat, rows)
        picked = gather_rows(flat.to(DEVICE), rows.to(DEVICE, numbers))
        assert torch.equal(picked.cpu(), flat.index_select(0, rows))


@kernels
def test_what_is_not_whole_words_is_left_to_torch() -> None:
    from metta_fast.algorithms.ppo.triton.gather_rows import fits

    flat = torch.zeros(40, 387, dtype=torch.uint8)
    four = torch.arange(4)
    assert fits(flat, four)
    assert not fits(flat, four[:3])
    assert not fits(flat[:39], four)
    assert not fits(flat[1:37], four)
    assert not fits(flat[:, :300], four)
    assert not fits(flat[:, :3].contiguous(), four)
    assert not fits(flat.float(), four)
    assert not fits(flat[:0], four)


@kernels
def test_results_of_more_than_2_to_the_31_words_are_left_to_torch() -> None:
    from metta_fast.algorithms.ppo.triton.gather_rows import fits

    flat = torch.empty(40, 384, dtype=torch.uint8, device="meta")
    for rows, supported in ((2**33 // 384, True), (2**33 // 384 + 1, False)):
        assert fits(flat, torch.empty(rows, dtype=torch.int64, device="meta")) == supported
