"""Sets torch's global switches from the configuration."""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from metta_fast.config.keys import TrainerConfig
from metta_fast.machine.compiler import provide_compiler
from metta_fast.runtime.nvrtc.compile import cache_folder

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def configure_torch(config: TrainerConfig, device: torch.device) -> None:
    """Sets TF32, cuDNN's algorithm search and deterministic kernels for this process."""
    if device.type == "cuda":
        provide_compiler(cache_folder().parent)  # Triton calls a C compiler
        torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = config.tf32
        torch.backends.cudnn.benchmark = config.cudnn_benchmark and not config.deterministic
        if config.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first use
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if (
        torch.are_deterministic_algorithms_enabled() != config.deterministic
    ):  # the call imports inductor, so it is skipped where it changes nothing
        torch.use_deterministic_algorithms(config.deterministic)


def autocast(config: TrainerConfig, device: torch.device) -> AbstractContextManager:
    """Returns a new context for mixed precision in the policy's forward pass."""
    dtype = AUTOCAST.get(config.precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def with_index(device: torch.device | str) -> torch.device:
    """Returns a device as tensors name theirs: cuda becomes cuda:N. Raises torch's own errors."""
    return torch.empty(0, device=device).device


@cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton kernels can run on `device` (it is CUDA or ROCm, and Triton is installed)."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None
