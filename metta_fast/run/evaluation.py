"""Evaluates a run's policy and writes replays between epochs.

Place in the flow: trainer.py calls both at a boundary when they are due. Training is left alone, also if `check` or a
signal ends them early: weights, environments and random generators are as before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvError, EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.metrics.loggers import Row
from metta_fast.run.build import Parts
from metta_fast.run.run_writer import Log
from metta_fast.storage.run_folder import RunDir

if TYPE_CHECKING:
    from metta_fast.policy import Policy


def evaluate_policy(config: Config, factory: EnvFactory, parts: Parts, check: Callable[[], None]) -> Row:
    """Returns eval/* figures. eval/seconds is how long it took, which counts in no speed and no phase.

    Args:
        check: called after each step; it may raise to end the evaluation.
    """
    from metta_fast.inference.evaluate import evaluate

    run, began = config.run, time.perf_counter()
    row = evaluate(
        factory,
        parts.policy,
        device=parts.device,
        num_envs=run.evaluate_episodes,
        seed=config.seed if run.evaluate_seed is None else run.evaluate_seed,
        deterministic=run.evaluate_deterministic,
        max_steps=config.env.max_steps,
        check=check,
    )
    return row | {"eval/seconds": time.perf_counter() - began}


def write_replay_page(
    config: Config,
    factory: EnvFactory,
    policy: Policy,
    folder: RunDir,
    step: int,
    log: Log,
    check: Callable[[], None],
) -> None:
    """Writes a replay. A failure is logged as a warning, and the training continues.

    Args:
        check: called after each step; it may raise to end the episode, and no page is written.
    """
    from metta_fast.episodes.training import write_replay

    try:
        path = write_replay(config, factory, policy, folder, step, check)
    except (OSError, EnvError, UserError) as error:
        log.warn(f"no replay of step {step}: {error}")
    else:
        log.note(f"replay {path}")
