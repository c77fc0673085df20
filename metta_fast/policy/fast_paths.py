"""The fast paths inside a policy: its sparse first layer and minGRU's scan. Their operators choose by device and dtype.

Place in the flow: an algorithm lists PATHS among those that it can take. The whole row of a rollout is rollout/'s.
"""

from __future__ import annotations

import torch

from metta_fast.policy.cores import MinGRUCore
from metta_fast.policy.grid.layout import LAYOUTS
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.runtime.fast_paths import (
    FastPath,
    Situation,
    only_on_cpu,
    only_on_gpu,
    register,
    without_triton,
)

TRITON = "metta_fast.policy.grid.triton."


def _layers(situation: Situation) -> list[SparseLayer]:
    return [module for module in situation.policy.modules() if isinstance(module, SparseLayer)]


def no_sparse_layer(situation: Situation) -> str | None:
    """Returns that the policy reads no grid, or None."""
    return None if _layers(situation) else "the policy has no sparse layer: it reads no grid"


def _is_compact(layer: SparseLayer, situation: Situation) -> bool:
    return (
        layer.layout == LAYOUTS["compact"]
        and situation.trainer.precision != "fp32"
        and torch.version.hip is None
    )


def _no_compact_layer(situation: Situation) -> str | None:
    if any(_is_compact(layer, situation) for layer in _layers(situation)):
        return None
    return "it is for compact observations, 16-bit products and NVIDIA cards"


def _all_compact(situation: Situation) -> str | None:
    if all(_is_compact(layer, situation) for layer in _layers(situation)):
        return "the first layer in Triton for compact observations is used"
    return None


def _no_scan(situation: Situation) -> str | None:
    found = any(isinstance(module, MinGRUCore) for module in situation.policy.modules())
    return None if found else "the policy has no minGRU"


def _not_float32(situation: Situation) -> str | None:
    precision = situation.trainer.precision
    return None if precision == "fp32" else f"trainer.precision={precision}: it computes in float32"


SPARSE_IN_C = register(
    FastPath(
        name="sparse first layer in C",
        replaces="decoding by torch and a dense product (policy/grid/sparse_layer.py: decoded)",
        why_not=lambda _: None,
        unneeded=lambda s: only_on_cpu(s) or no_sparse_layer(s),
        test="tests/policy/test_grid_layout.py::test_the_kernel_computes_what_torch_computes",
        modules=("metta_fast.policy.grid.sparse_layer",),
    )
)
SPARSE_IN_TRITON = register(
    FastPath(
        name="sparse first layer in Triton",
        replaces="decoding by torch and a dense product (policy/grid/sparse_layer.py: decoded)",
        why_not=without_triton,
        unneeded=lambda s: only_on_gpu(s) or no_sparse_layer(s) or _all_compact(s),
        test="tests/policy/test_gpu_first_layer.py::test_triton_on_games",
        modules=("metta_fast.policy.grid.sparse_layer", f"{TRITON}layer_operator"),
    )
)
COMPACT_IN_TRITON = register(
    FastPath(
        name="first layer of compact observations in Triton",
        replaces="decoding by torch and a dense product (policy/grid/sparse_layer.py: decoded)",
        why_not=without_triton,
        unneeded=lambda s: only_on_gpu(s) or no_sparse_layer(s) or _no_compact_layer(s),
        test="tests/policy/test_gpu_first_layer.py::test_triton_on_games",
        modules=("metta_fast.policy.grid.sparse_layer", f"{TRITON}compact_operator"),
    )
)
SCAN_IN_C = register(
    FastPath(
        name="minGRU's scan in C",
        replaces="one torch operation for each row (policy/mingru/scan.py: _rowwise)",
        why_not=_not_float32,
        unneeded=lambda s: only_on_cpu(s) or _no_scan(s),
        test="tests/policy/test_mingru.py::test_forward_and_backward_are_the_references",
        modules=("metta_fast.policy.mingru.scan",),
    )
)
SCAN_IN_TRITON = register(
    FastPath(
        name="minGRU's scan in Triton",
        replaces="one torch operation for each row (policy/mingru/scan.py: _rowwise)",
        why_not=without_triton,
        unneeded=lambda s: only_on_gpu(s) or _no_scan(s),
        test="tests/policy/test_mingru.py::test_triton_gives_the_references_numbers",
        modules=("metta_fast.policy.mingru.scan",),
    )
)
PATHS = (SPARSE_IN_C, SPARSE_IN_TRITON, COMPACT_IN_TRITON, SCAN_IN_C, SCAN_IN_TRITON)
