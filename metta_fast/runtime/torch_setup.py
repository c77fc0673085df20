"""torch's global switches as the configuration wants them."""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from metta_fast.config.keys import TrainerConfig

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def configure_torch(config: TrainerConfig, device: torch.device) -> None:
    """Set TF32, cuDNN's search and deterministic kernels for this process."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = config.tf32
        torch.backends.cudnn.benchmark = config.cudnn_benchmark and not config.deterministic
        if config.deterministic:
            os.environ.setdefault(
                "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
            )  # cuBLAS reads it when it is first used
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if (
        torch.are_deterministic_algorithms_enabled() != config.deterministic
    ):  # the call alone imports inductor
        torch.use_deterministic_algorithms(config.deterministic)


def autocast(config: TrainerConfig, device: torch.device) -> AbstractContextManager:
    """Mixed precision of the policy's forward pass: a new context each time."""
    dtype = AUTOCAST.get(config.precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


@cache
def has_triton(device: torch.device) -> bool:
    """Kernels written in Triton can run on `device`'s tensors (CUDA or ROCm, and Triton is installed)."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None
