"""Measures the learner's kernels from the first layer to the loss and back, on a GPU.

    python -m tests.ppo.time_gpu_tail [rows] [width] [core]

Microseconds a minibatch, of 8 different ones replayed in one CUDA graph.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from metta_fast.algorithms.ppo.triton import loss_and_backward as gpu_tail
from tests.policy.time_gpu_act import CALLS, us
from tests.ppo.test_gpu_tail import Case


def main(rows: int, width: int, core: str) -> None:
    case = Case(width=width, core=core, nvec=(9, 9), agents=rows * 8 // 32, bptt=16, masked=0.0)
    segments = torch.randperm(case.buffers.num_segments, device="cuda").view(-1, rows // 16)
    layers = tuple(p.detach() for layer in case.tail().layers for p in layer.parameters())
    x = [torch.randn(rows, width, device="cuda").bfloat16() for _ in segments]
    print(f"{torch.cuda.get_device_name()}, {rows} rows, width {width}, {CALLS} calls")
    for programs in (128, 256):
        gpu_tail.PROGRAMS = programs
        tail = case.tail()

        def all_three(t: int, tail: Any = tail) -> None:
            i = t % len(x)
            tail.run(x[i], layers, tail.gather(segments[i]), case.buffers.value, None)

        def gather(t: int, tail: Any = tail) -> None:
            tail.gather(segments[t % len(x)])

        print(f"programs={programs}: {us(all_three):6.1f} us, of it gather {us(gather):5.1f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    rows, width, core = given + ["32768", "128", "none"][len(given) :]
    main(int(rows), int(width), core)
