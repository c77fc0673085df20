"""Runs as the child of find_batch.py: builds one batch size and trains until its peak memory is reached.

On a GPU this takes two epochs (the second replays CUDA graphs). On the CPU, where an epoch of a large batch takes
minutes, it trains a batch of one minibatch instead, and allocates and touches the memory of the remaining rollout.

Running out of memory must not harm other programs. On the CPU this process limits its own memory, and if the kernel
still has to kill a process, it kills this one first.
"""

from __future__ import annotations

import contextlib
import mmap
import resource
import sys
from collections.abc import Iterable
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metta_fast.bench.harness.child_loop import serve

if TYPE_CHECKING:
    from metta_fast.contracts.algorithm import MemoryPart

EPOCHS = 2


class Trial:
    """Tries one batch size: `ready()`, then `run()`."""

    def __init__(self, config: dict[str, Any], host_limit: int) -> None:
        """Builds the run.

        Args:
            config: the resolved configuration as a dict.
            host_limit: bytes that this process may allocate on the CPU.
        """
        from metta_fast.config.keys import config_from_dict
        from metta_fast.envs import make_factory
        from metta_fast.resolve import memory_estimate as memory
        from metta_fast.run.build import build_parts

        full = config_from_dict(config)
        factory = make_factory(full.env)
        self.on_gpu = full.trainer.device == "cuda"
        with contextlib.suppress(OSError):  # exists on Linux only
            Path("/proc/self/oom_score_adj").write_text("1000")
        ballast = 0
        used = full
        if not self.on_gpu:
            resource.setrlimit(resource.RLIMIT_DATA, (host_limit, host_limit))
            used = config_from_dict(config)
            agents = full.env.num_envs * full.env.agents_per_env
            step = lcm(agents * full.trainer.bptt_horizon, full.trainer.minibatch_size)
            used.trainer.batch_size = min(step, full.trainer.batch_size)
            used.trainer.gradient_accumulation = 1
            spec = factory.spec
            ballast = rollout(memory.estimate(full, spec)) - rollout(memory.estimate(used, spec))
        self.ballast = bytearray(max(ballast, 0))
        self.ballast[:: mmap.PAGESIZE] = b"\1" * len(range(0, len(self.ballast), mmap.PAGESIZE))
        self.parts = build_parts(used, factory)

    def ready(self) -> dict[str, Any]:
        return {"ready": True}

    def run(self) -> dict[str, int]:
        """Trains, with the copies that a run makes between epochs; returns the peak bytes in use."""
        import torch

        algorithm = self.parts.algorithm
        for _ in range(EPOCHS if self.on_gpu else 1):
            algorithm.collect()
            algorithm.update()
            algorithm.state_dict()
        if self.on_gpu:
            torch.cuda.synchronize(self.parts.device)
            free, total = torch.cuda.mem_get_info(self.parts.device)
            return {"bytes": total - free}
        unit = 1 if sys.platform == "darwin" else 1024
        return {"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}

    def close(self) -> None:
        self.parts.close()


def rollout(parts: Iterable[MemoryPart]) -> int:
    """Returns the bytes of the rollout among the estimated parts."""
    return next(part.bytes for part in parts if part.name == "rollout")


if __name__ == "__main__":
    serve(Trial)
