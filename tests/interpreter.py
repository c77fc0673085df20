"""Tests of Triton kernels: on a GPU they run there, else under Triton's interpreter, in a process of its own, as it is
chosen at import:

    TRITON_INTERPRET=1 python -m pytest tests/policy/test_gpu_act.py

What the interpreter gets right a card may still get wrong: it has no tensor cores, no barriers and no bf16 products.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = importlib.util.find_spec("triton") is not None
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
RUNS = TRITON and (ON_GPU or INTERPRETED)
"""Kernels run in this process."""

kernels = pytest.mark.skipif(not RUNS, reason="needs a CUDA device, or Triton's interpreter")
gpu = [pytest.mark.gpu, pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")]
elsewhere = pytest.mark.skipif(
    not TRITON or ON_GPU or INTERPRETED, reason="the tests below run in this process"
)


def run_interpreted(file: str, *more: str) -> None:
    """Run the tests of `file` under the interpreter; for a test marked `elsewhere`."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *more, file],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "passed" in ran.stdout


def _mend_interpreter() -> None:
    """Loops of unknown length: Triton 3.6 asks an array of one element for an int, which numpy 2.4 refuses.
    Reductions by `or`: it calls Python for every element."""
    import triton.language as tl
    from triton.runtime import interpreter

    patch, reduce = interpreter._patch_lang_tensor, interpreter.ReduceOps.generic_reduce

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def quick(self: Any, given: Any) -> Any:
        if self.combine_fn is not tl.standard._or_combine or self.axis is not None:
            return reduce(self, given)
        return [self.to_tensor(np.bitwise_or.reduce(x.handle.data, None), x.dtype) for x in given]

    interpreter._patch_lang_tensor = patched
    interpreter.ReduceOps.generic_reduce = quick


if TRITON and INTERPRETED:
    _mend_interpreter()
