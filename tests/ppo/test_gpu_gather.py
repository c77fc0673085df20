"""Picking rows of bytes: on a GPU, else under Triton's interpreter in a process of its own:

TRITON_INTERPRET=1 python -m pytest tests/ppo/test_gpu_gather.py
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if ON_GPU else "cpu"
kernels = pytest.mark.skipif(
    not TRITON or not (ON_GPU or INTERPRETED), reason="needs a CUDA device, or Triton's interpreter"
)


@pytest.mark.skipif(not TRITON or ON_GPU or INTERPRETED, reason="the tests below run in this process")
def test_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    ran = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=110
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "passed" in ran.stdout


@kernels
@pytest.mark.parametrize("shape", [(387,), (4,), (5,), (6, 1), (200, 3), (11, 11, 24)])
@pytest.mark.parametrize("numbers", [torch.int32, torch.int64])
def test_rows_are_those_of_index_select(shape: tuple[int, ...], numbers: torch.dtype) -> None:
    from metta_fast.ppo.gpu_gather import fits, gather_rows

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
    from metta_fast.ppo.gpu_gather import fits

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
