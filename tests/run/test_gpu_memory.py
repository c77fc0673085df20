"""Compares the estimated GPU memory (metta_fast/resolve/memory_estimate.py) with what the driver reports as taken.

    python -m pytest -m gpu -s tests/run/test_gpu_memory.py           # prints a line a shape
    python -m tests.run.test_gpu_memory env=grid_bench policy=lstm    # the same for sizes of your own

Each shape trains in a process of its own. Nothing else may take or give back memory of the card meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from metta_fast.bench.gpu import cases as gpu_cases
from tests.interpreter import gpu

pytestmark = [
    *gpu,
    pytest.mark.skipif(
        "PYTEST_XDIST_WORKER" in os.environ, reason="other workers' memory would be counted: run it alone"
    ),
]
MIB = 1 << 20
ABOVE, CONTEXT = 2.0, 512 * MIB
"""The estimate is at most twice what was taken, and half a GiB: what CUDA takes differs by card and driver."""
BELOW = 0.95
"""It is never less than this share of it: a run that is let through must not run out of memory."""
EPOCHS = 4
"""One launch by launch, one captured, two replayed."""
SHAPES: dict[str, tuple[str, ...]] = {
    **gpu_cases.SHAPES,
    "dense observation": (*gpu_cases.BASE, *gpu_cases.PROFILE, "env.observation=dense"),
    "65,536 agents": (
        *gpu_cases.BASE,
        "env.num_envs=16384",
        "trainer.batch_size=2097152",
        "trainer.minibatch_size=262144",
    ),
}


def measure(words: list[str]) -> dict[str, int]:
    """Train some epochs. Bytes: `taken` by the driver's count, `reserved` by torch, `estimate` before."""
    from metta_fast.machine import hardware
    from metta_fast.resolve import memory_estimate as memory
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve
    from metta_fast.run.build import build_parts

    def free() -> int:
        (card, *_) = hardware.detect().gpus  # the first that torch sees, by the driver's count
        assert card.free is not None
        return card.free

    before = free()  # nothing has touched CUDA yet
    resolved = resolve(compose([f"trainer.total_timesteps={10**12}", *words]))
    parts = build_parts(resolved.config)
    least = before
    for _ in range(EPOCHS):
        parts.algorithm.collect()
        parts.algorithm.update()
        torch.cuda.synchronize()
        least = min(least, free())
    found = {"taken": before - least, "reserved": torch.cuda.memory_reserved()}
    parts.close()
    return found | {"estimate": memory.total(resolved.memory, on_gpu=True)}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimate_holds(shape: str) -> None:
    command = [sys.executable, "-m", "tests.run.test_gpu_memory", *SHAPES[shape]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    said = ", ".join(f"{name} {value / MIB:.0f} MiB" for name, value in found.items())
    print(f"\n{shape}: {said}")
    assert found["reserved"] < found["taken"], "the driver counts torch's memory and the context"
    assert found["estimate"] >= BELOW * found["taken"], f"{shape}: {said}"
    assert found["estimate"] <= ABOVE * found["taken"] + CONTEXT, f"{shape}: {said}"


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1:])))
