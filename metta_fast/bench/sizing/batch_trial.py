"""The child's program of find_batch.py: one batch size, built and run until all its memory was in use.

On a GPU that is two epochs (the second replays CUDA graphs). On the CPU, where an epoch of a large batch takes minutes,
a run of one minibatch stands for it: what the rest of the rollout takes is added as plain memory, and written to.

Memory that runs out must not take other programs with it: on the CPU this process may take what it was told and no
more, and if the kernel ends a process all the same, this one is the first.
"""

from __future__ import annotations

import contextlib
import resource
from math import lcm
from pathlib import Path
from typing import Any

from metta_fast.bench.harness.child_loop import serve

PAGE = 4096
EPOCHS = 2


class Trial:
    """`ready()`, then `run()`."""

    def __init__(self, config: dict[str, Any], host_limit: int) -> None:
        from metta_fast.config.keys import config_from_dict
        from metta_fast.envs import make_factory
        from metta_fast.resolve import memory_estimate as memory
        from metta_fast.run.build import build_parts

        full = config_from_dict(config)
        factory = make_factory(full.env)
        self.on_gpu = full.trainer.device == "cuda"
        with contextlib.suppress(OSError):  # no such file but on Linux
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
        self.ballast[::PAGE] = b"\1" * len(range(0, len(self.ballast), PAGE))
        self.parts = build_parts(used, factory)

    def ready(self) -> dict[str, Any]:
        return {"ready": True}

    def run(self) -> dict[str, int]:
        """Train; what a run does at a boundary as well. Gives the bytes that were in use at most."""
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
        return {"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def close(self) -> None:
        self.parts.close()


def rollout(parts: Any) -> int:
    """Bytes of the rollout alone."""
    return next(part.bytes for part in parts if part.name == "rollout")


if __name__ == "__main__":
    serve(Trial)
