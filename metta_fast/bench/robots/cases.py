"""Lists what `--robot NAME` measures: for each number of robots, stepping and training by every preset, and the CPU's.

Training is of 16 rows of each robot in an epoch, with the recipe's other values; on the CPU the recipe's own sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.machine import hardware

PRESETS = ("exact", "fast", "loose")
ENVS, QUICK_ENVS = "4096,16384,65536", "4096"
ROWS = 16
"""Of each robot in a training's epoch."""
CPU_ENVS = 64
"""Robots for each core, where the CPU steps them."""


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    what: str
    preset: str
    """"": on the CPU."""
    envs: int
    message: Mapping[str, Any]
    """Of child_program.build."""

    @property
    def name(self) -> str:
        return f"{self.what}, {self.preset or 'CPU'}, {self.envs} robots"


def cases(recipe: str, envs: str, machine: hardware.Machine | None = None) -> list[list[Case]]:
    """Returns groups of cases to measure in turns, the CPU's first.

    Args:
        envs: numbers of robots: `4096,16384`.

    Raises:
        UserError: a malformed list, no such recipe, or one that is no robot on MuJoCo Warp; what it lacks.
    """
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve

    machine = machine or hardware.detect()
    cpu = ["hardware=auto", f"env={recipe}", "env.device=cpu"]
    on_cpu = resolve(compose(cpu, machine=machine), machine=machine)
    here = int(on_cpu.config.env.num_envs)
    if not hasattr(on_cpu.factory, "preset"):
        raise UserError(f"--robot {recipe}: it has no presets; give a robot, such as ant (docs/robots.md)")
    found = []
    for count in _counts(envs):
        stepped = CPU_ENVS * machine.cores
        physics = [Case("physics", "", stepped, {"kind": "cpu", "overrides": cpu, "num_envs": stepped})]
        words = {preset: _words(recipe, preset, count) for preset in PRESETS}
        for typed in words.values():
            resolve(compose(typed, machine=machine), machine=machine)  # raises what a child would
        training = [Case("training", "", here, {"kind": "train", "overrides": cpu})]
        for preset, typed in words.items():
            message = {"kind": "physics", "overrides": typed, "num_envs": count}
            physics.append(Case("physics", preset, count, message))
            training.append(Case("training", preset, count, {"kind": "train", "overrides": typed}))
        found += [physics, training]
    return found


def _words(recipe: str, preset: str, envs: int) -> list[str]:
    return [
        "hardware=auto",
        f"env={recipe}",
        "env.device=cuda",
        f"env.params.preset={preset}",
        f"env.num_envs={envs}",
        f"trainer.batch_size={ROWS * envs}",
        f"trainer.minibatch_size={ROWS * envs // 4}",
    ]


def _counts(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= 1 for word in words):
        raise UserError(f"--envs {text}: expected whole numbers of at least 1, such as {ENVS}")
    return sorted({int(word) for word in words})
