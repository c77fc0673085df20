"""Estimates the cost of a run's checkpoints, evaluations, replays, gradient statistics and monitor readings.

One of each is measured, and the share of the training's time follows from its interval.

    costs = side.interval_costs(["checkpoint", "evaluate"])   # {"checkpoint": 0.02, "evaluate": 1.4}
    share(config.run, costs, epoch_s=0.9)                     # 0.03: three seconds per hundred seconds of training

They are hundreds of epochs and at least run.min_interval_s apart, so a round of a benchmark contains at most one.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metta_fast.config.keys import Config, RunConfig, config_to_dict
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.storage.run_folder import RunDir

if TYPE_CHECKING:
    from metta_fast.algorithms.hooks import Hooks
    from metta_fast.run.build import Parts

COUNTED = ("checkpoint", "evaluate", "replay", "gradient_stats", "monitor")
"""Names whose keys are run.<name>_interval."""
PAIRS = 3
"""Number of epochs with gradient statistics, and of epochs without."""


def measure(config: Config, parts: Parts, names: Sequence[str]) -> dict[str, float]:
    """Measures the seconds that one of each takes, for the given names of COUNTED."""
    with tempfile.TemporaryDirectory() as folder:
        work: dict[str, Callable[[], float]] = {
            "checkpoint": lambda: _checkpoint(config, parts, Path(folder)),
            "evaluate": lambda: _evaluation(config, parts),
            "replay": lambda: _replay(config, parts, RunDir(Path(folder))),
            "gradient_stats": lambda: _gradient_stats(config, parts),
            "monitor": lambda: _reading(parts),
        }
        return {name: work[name]() for name in COUNTED if name in names}


def _checkpoint(config: Config, parts: Parts, folder: Path) -> float:
    """Measures the second checkpoint, since the first creates folders and fills caches."""
    from metta_fast.storage import checkpoint

    def save(step: int) -> None:
        states = {"algorithm": parts.algorithm.state_dict()}
        checkpoint.save(folder, step, states, {"config": config_to_dict(config)})

    save(0)
    return _timed(lambda: save(1))


def _evaluation(config: Config, parts: Parts) -> float:
    from metta_fast.inference.evaluate import evaluate

    factory = parts.factory
    assert factory is not None
    return _timed(
        lambda: evaluate(
            factory,
            parts.policy,
            device=parts.device,
            num_envs=config.run.evaluate_episodes,
            seed=config.seed,
            deterministic=config.run.evaluate_deterministic,
            max_steps=config.env.max_steps,
        )
    )


def _replay(config: Config, parts: Parts, folder: RunDir) -> float:
    """Measures a replay, ignoring failures that a training would only warn about (no pictures on this machine)."""
    from metta_fast.episodes.training import write_replay

    factory = parts.factory
    assert factory is not None

    def write() -> None:
        with contextlib.suppress(OSError, EnvError, UserError):
            write_replay(config, factory, parts.policy, folder, 0)

    return _timed(write)


def _gradient_stats(config: Config, parts: Parts) -> float:
    """Measures how much longer an epoch takes with gradient statistics (medians); the run trains on meanwhile."""
    from metta_fast.features.every import every
    from metta_fast.features.gradient_stats import GradientStats

    algorithm = parts.algorithm
    hooks: Hooks = getattr(algorithm, "hooks")  # noqa: B009 - an algorithm that takes features has them
    before = list(hooks.on_gradients), list(hooks.on_epoch)

    def one() -> None:
        algorithm.collect()
        algorithm.update()
        algorithm.metrics()

    def epoch() -> float:
        return _timed(one)

    bare = statistics.median([epoch() for _ in range(PAIRS)])
    stats = GradientStats(every(1), config.trainer.max_grad_norm)
    hooks.on_gradients.append(stats)
    hooks.on_epoch.append(stats)
    try:
        epoch()  # compiles the kernels that only this kind of update uses
        watched = statistics.median([epoch() for _ in range(PAIRS)])
    finally:
        hooks.on_gradients[:], hooks.on_epoch[:] = before
    return max(watched - bare, 0.0)


def _reading(parts: Parts) -> float:
    from metta_fast.machine.monitor import Monitor

    monitor = Monitor(parts.device)
    try:
        monitor.read()
        return _timed(monitor.read)
    finally:
        monitor.close()


def share(run: RunConfig, costs: Mapping[str, float], epoch_s: float) -> float:
    """Computes the seconds spent on them per second of training, with epochs of `epoch_s` seconds."""
    total = 0.0
    for name, cost in costs.items():
        epochs = getattr(run, f"{name}_interval")
        if epochs:
            apart = max(epochs * epoch_s, run.min_interval_s)
            if name == "checkpoint":
                apart = min(apart, run.checkpoint_max_s)
            total += cost / apart
    return total


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
