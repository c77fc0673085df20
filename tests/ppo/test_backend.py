"""Tests that torch's global switches follow the configuration; each test restores them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from metta_fast.runtime.torch_setup import autocast, configure_torch
from tests.ppo.stand_in import make_config

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision(before[0])
    cudnn.allow_tf32, cudnn.benchmark = before[1:]
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that the undoing takes away what was set


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize(("search", "deterministic"), [(True, False), (False, False), (True, True)])
def test_tf32_cudnn_and_deterministic(tf32: bool, search: bool, deterministic: bool) -> None:
    trainer = make_config(tf32=tf32, cudnn_benchmark=search, deterministic=deterministic).trainer
    configure_torch(trainer, CUDA)
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    assert torch.backends.cudnn.allow_tf32 is tf32
    assert torch.backends.cudnn.benchmark is (search and not deterministic)
    assert torch.are_deterministic_algorithms_enabled() is deterministic


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_are_in_the_chosen_precision(precision: str, dtype: torch.dtype) -> None:
    trainer = make_config(precision=precision).trainer
    with autocast(trainer, torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
