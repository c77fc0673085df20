"""Compares training a robot with Stable-Baselines3's PPO at the same settings, in turns.

    python benchmark_performance.py --sb3 ant

    ours                          the backend `threads` on all cores, torch on one thread
    SB3, 1 torch thread | all     DummyVecEnv;  SB3, processes: SubprocVecEnv, one process per environment

The ratio is against SB3's fastest variant. Both sides train separate 2×64 tanh networks for actions and value, on
normalised observations and rewards, with SETTINGS. Everything counts: stepping, inference, advantages, updates.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from metta_fast.bench.harness.child_handle import BUILD_LIMIT_S, Child, Failed
from metta_fast.bench.harness.libraries import SB3
from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import in_turns
from metta_fast.bench.training.peers import TURN_LIMIT_S
from metta_fast.bench.training.side import Side
from metta_fast.bench.training.two_settings import add_side
from metta_fast.contracts.env_answers import gymnasium_id
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.machine import hardware
from metta_fast.resolve.compose import compose

WORKER = (sys.executable, "-m", "metta_fast.bench.training.sb3_robot_child")
SETTINGS = {
    "num_envs": 16,
    "batch_size": 1024,
    "minibatch_size": 256,
    "update_epochs": 10,
    "hidden_size": 64,
}
"""SB3's defaults, except the rollout (16 × 64 steps instead of 1 × 2048) and the minibatch (256 instead of 64)."""


def compare_sb3(report: Report, env: str, seconds: float, repeats: int, say: Callable[[str], None]) -> None:
    """Adds a row for each side, and the ratio, to the report.

    Raises:
        UserError: SB3 is not installed or fails, or `env` is not a robot.
    """
    if not SB3.version():
        raise UserError(f"--sb3 needs {SB3.name}: {SB3.install}")
    task, options = _robot(env)
    cores = hardware.allowed_cores()
    variants = [("SB3, 1 torch thread", False, 1), ("SB3, processes", True, 1)]
    if cores > 1:
        variants.insert(1, (f"SB3, {cores} torch threads", False, cores))
    try:
        with ExitStack() as stack:
            say("ours: building")
            side = stack.enter_context(Side("ours", _ours(env)))
            _say_burnt(say, "ours", side.burn_in(seconds))
            turns = [partial(side.round, seconds)]
            for name, processes, threads in variants:
                say(f"{name}: building")
                child = stack.enter_context(Child(name, command=WORKER))
                more = {"task": task, "options": options, "processes": processes, "torch_threads": threads}
                child.ask(BUILD_LIMIT_S, do="build", **SETTINGS, **more)
                _say_burnt(say, name, child.ask(TURN_LIMIT_S, do="burn_in", seconds=seconds))
                turns.append(partial(child.ask, TURN_LIMIT_S, do="round", seconds=seconds))
            results, notes = in_turns(turns, repeats, say)
    except Failed as failed:
        raise UserError(f"{failed.why}\n{failed.printed}") from None
    report.notes += notes
    report.notes.append(f"{SB3.name} {SB3.version()}, {task}; both sides: {SETTINGS}")
    add_side(report, "ours", side, results[0])
    speeds = [[one["steps_per_s"] for one in rounds] for rounds in results]
    for (name, _, _), found in zip(variants, speeds[1:], strict=True):
        report.add_row(name, found)
    best = max(range(len(variants)), key=lambda i: statistics.median(speeds[1 + i]))
    report.add_ratio(f"ours / {variants[best][0]}", speeds[0], speeds[1 + best])


def _say_burnt(say: Callable[[str], None], name: str, burnt: dict[str, Any]) -> None:
    say(f"{name}: burn-in of {burnt['epochs']} epochs, {burnt['seconds']:.1f} s")


def _ours(env: str) -> list[str]:
    return [
        f"env={env}",
        "hardware=cpu",
        f"env.num_envs={SETTINGS['num_envs']}",
        f"trainer.batch_size={SETTINGS['batch_size']}",
        f"trainer.minibatch_size={SETTINGS['minibatch_size']}",
        f"trainer.update_epochs={SETTINGS['update_epochs']}",
        f"policy.hidden_size={SETTINGS['hidden_size']}",
        "trainer.recompute=epoch",  # as SB3 has them
        "trainer.normalize_advantage=true",
    ]


def _robot(env: str) -> tuple[str, dict[str, Any]]:
    """Returns Gymnasium's name (half_cheetah: HalfCheetah-v5), and the constructor's options in the recipe."""
    config: Any = compose(["hardware=cpu", f"env={env}"]).config.env
    task = gymnasium_id(make_factory(config))
    if not task:
        raise UserError(f"--sb3 {env}: expected one of our robots that Gymnasium has too (ant, hopper, …)")
    return task, {name: value for name, value in config.params.items() if name != "task"}
