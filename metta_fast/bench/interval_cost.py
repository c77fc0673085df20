"""What checkpoints, evaluations, replays and readings of the machine cost a run, reckoned from what one of each takes.

    costs = side.interval_costs()                       # {"checkpoint": 0.02, "evaluate": 1.4, …}
    share(config.run, costs, epoch_s=0.9)               # 0.03: three seconds for every hundred of training

They come hundreds of epochs and at least run.min_interval_s apart, so that a round of a benchmark holds none or one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from metta_fast.config import Config, RunConfig, config_to_dict


def measure(config: Config, parts: Any) -> dict[str, float]:
    """Seconds of one of each, after one that is not counted; `parts` are those of a run (assembly.py)."""
    from metta_fast import checkpoint
    from metta_fast.evaluate import evaluate
    from metta_fast.monitor import Monitor
    from metta_fast.replay.training import write_replay
    from metta_fast.run_dir import RunDir

    with tempfile.TemporaryDirectory() as folder:

        def save(step: int) -> None:
            states = {"algorithm": parts.algorithm.state_dict()}
            checkpoint.save(Path(folder), step, states, {"config": config_to_dict(config)})

        def play() -> None:
            evaluate(
                config,
                parts.policy,
                device=parts.device,
                num_envs=config.run.evaluate_episodes,
                seed=config.seed,
                deterministic=config.run.evaluate_deterministic,
            )

        monitor = Monitor(parts.device)
        try:
            monitor.read()
            reading = _timed(monitor.read)
        finally:
            monitor.close()
        run = RunDir(Path(folder))
        save(0)
        return {
            "checkpoint": _timed(lambda: save(1)),
            "evaluate": _timed(play),
            "replay": _timed(lambda: write_replay(config, parts.policy, run, 1)),
            "monitor": reading,
        }


def share(run: RunConfig, costs: Mapping[str, float], epoch_s: float) -> float:
    """Seconds spent on them for each second of training, epochs of `epoch_s` seconds."""
    total = 0.0
    for name, cost in costs.items():
        epochs = getattr(run, f"{name}_interval")
        if epochs:
            apart = max(epochs * epoch_s, run.min_interval_s)
            if name == "checkpoint":
                apart = min(apart, run.checkpoint_max_s)
            total += cost / apart
    return total


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
