"""Lists what `--camera NAME` measures: by renderer and number of robots, the sides that take turns.

    physics     random actions, without pictures
    camera      random actions, with pictures
    policy      a run's rollouts, and its whole epochs

The batched renderer is measured where there is a GPU for it, the sequential one everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.machine import hardware
from metta_fast.resolve.env_on_gpu import card_obstacle

ENVS, SIZES = "1,4,8,16,64,1024,4096", "64,84"
QUICK_ENVS, QUICK_SIZES = "4", "64"
ROWS = 64
"""Of each robot in an epoch, where they are few."""
MOST_ROWS = {"sequential": 2048, "batch": 65536}
"""Of all robots in an epoch, unless each has LEAST_ROWS only: as many as a training of so many robots takes."""
LEAST_ROWS = 2
DEVICES = {"sequential": "cpu", "batch": "cuda"}
"""Renderer → env.device."""


@dataclass(frozen=True)
class Side:
    """One child of a group."""

    part: str
    """physics, camera or policy."""
    size: int
    """Pixels; 0: without pictures."""
    message: Mapping[str, Any]
    """Of child_program.build."""

    @property
    def name(self) -> str:
        return f"{self.part}, {self.size} px" if self.size else self.part


@dataclass(frozen=True)
class Group:
    """Sides that take turns: of one renderer and number of robots."""

    renderer: str
    envs: int
    sides: tuple[Side, ...]

    @property
    def name(self) -> str:
        return f"{self.renderer}, {self.envs} robots"


def groups(
    recipe: str,
    envs: str,
    sizes: str,
    overrides: Sequence[str] = (),
    machine: hardware.Machine | None = None,
) -> tuple[list[Group], list[str]]:
    """Returns the groups, and notes on what is left out.

    Args:
        envs, sizes: numbers of robots, and of pixels: `1,4,8`.
        overrides: as for training.

    Raises:
        UserError: a malformed list, no such recipe, or one without pictures.
    """
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve

    machine = machine or hardware.detect()
    common = ["hardware=auto", f"env={recipe}", *overrides]
    config = compose(common, machine=machine).config
    if not config.env.image.cameras:
        raise UserError(
            f"--camera {recipe}: it sees no pictures; give a recipe that does, such as lift_cube_wrist, or add "
            "env.image.cameras=[NAME]"
        )
    obstacle = card_obstacle(machine) if machine.gpus else None
    missing = obstacle.why if obstacle else "" if machine.gpus else "no GPU was found"
    found = []
    for renderer, device in DEVICES.items():
        if renderer == "batch" and missing:
            continue
        for count in _numbers("--envs", envs, 1):
            rows = max(LEAST_ROWS, min(ROWS, MOST_ROWS[renderer] // count)) * count
            words = [
                *common,
                f"env.device={device}",
                f"env.num_envs={count}",
                f"trainer.batch_size={rows}",
                f"trainer.minibatch_size={max(rows // 8, 1)}",
                *(["vector.async_factor=1"] if count == 1 and device == "cpu" else []),
            ]
            alone = {"kind": device, "overrides": words, "num_envs": count}
            sides = [Side("physics", 0, {**alone, "pictures": False})]
            for size in _numbers("--sizes", sizes, 8):
                sized = [*words, f"env.image.size={size}"]
                resolve(compose(sized, machine=machine), machine=machine)  # raises what a child would
                sides.append(Side("camera", size, {**alone, "overrides": sized, "pictures": True}))
                sides.append(Side("policy", size, {"kind": "run", "overrides": sized}))
            found.append(Group(renderer, count, tuple(sides)))
    notes = [f"env.renderer=batch is left out: {missing}"] if missing else []
    return found, notes


def _numbers(option: str, text: str, least: int) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and least <= int(word) < 1 << 31 for word in words):
        raise UserError(
            f"{option} {text}: expected whole numbers of at least {least}, such as {least},{8 * least}"
        )
    return sorted({int(word) for word in words})
