"""Measures the first layer over compact observations on a GPU, forward and backward.

    python -m tests.policy.time_gpu_sparse [kind] [width]

Microseconds a call, of calls replayed in one CUDA graph that take turns with different rows; beside it what the
kernels of a call take one by one, and the product of decoded inputs by torch as it is without them.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from metta_fast.policy.grid.layout import LAYOUTS
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.grid.triton import compact_operator as gpu_compact
from metta_fast.policy.grid.triton import layer_operator as gpu_sparse
from tests.policy.specs import grid_obs
from tests.policy.time_gpu_act import us

CALLS = 8


def measure(kind: str, width: int, rows: int, dtype: torch.dtype, games: Tensor) -> None:
    layer = SparseLayer(LAYOUTS[kind], width).cuda()
    weight, bias = layer.weight.detach(), layer.bias.detach()
    picks = [torch.randint(len(games), (rows,)) for _ in range(CALLS)]
    obs = [games[pick].flatten(1).cuda() for pick in picks]
    grad = [torch.randn(rows, width, device="cuda").to(dtype) for _ in range(CALLS)]
    if kind == "compact" and dtype != torch.float32:
        cells = [gpu_compact.cells(x, dtype) for x in obs]
        found = {
            "cells": us(lambda i: gpu_compact.cells(obs[i % CALLS], dtype)),
            "forward": us(lambda i: gpu_compact.forward(*cells[i % CALLS], weight, bias, rows)),
            "backward": us(lambda i: gpu_compact.gradient(*cells[i % CALLS], grad[i % CALLS])),
        }
    else:
        seen = gpu_sparse.forward(obs[0], weight, bias, dtype)[1]
        found = {
            "pack": us(lambda i: gpu_sparse.pack(weight, kind == "dense", dtype)),
            "forward": us(lambda i: gpu_sparse.forward(obs[i % CALLS], weight, bias, dtype)),
            "backward": us(lambda i: gpu_sparse.gradient(obs[i % CALLS], grad[i % CALLS], seen, len(weight))),
        }
    if rows <= 8192:  # the decoded inputs of more are gigabytes

        def decoded(i: int) -> Tensor:
            with torch.no_grad(), torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                return layer.decoded(obs[i % CALLS].unflatten(1, LAYOUTS[kind].shape))

        found["decoded, forward"] = us(decoded)
    figures = "  ".join(f"{name} {value:.1f}" for name, value in found.items())
    print(f"{kind} width {width} {dtype} rows {rows}: {figures} µs", flush=True)


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "compact"
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    games = grid_obs(kind, 4096)
    print(torch.cuda.get_device_name(), flush=True)
    torch.set_float32_matmul_precision("high")
    for dtype in (torch.bfloat16, torch.float32):
        for rows in (8192, 32768):
            measure(kind, width, rows, dtype, games)


if __name__ == "__main__":
    main()
