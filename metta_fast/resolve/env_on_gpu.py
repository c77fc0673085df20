"""Checks whether environments can step on this machine's GPU with this configuration.

    obstacle(factory, machine)    why the environment or the machine does not support it, and what to do
    cpu_wishes(config, …)         keys whose values need environments on the CPU

Used by resolve.py for `env.device`. Neither torch nor CUDA is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metta_fast.config.keys import Config, get, shown
from metta_fast.contracts.env_answers import gpu_obstacle
from metta_fast.machine.hardware import DRIVERS, Machine
from metta_fast.machine.installation import install_extra, install_packages

if TYPE_CHECKING:
    from metta_fast.contracts.env import EnvFactory


@dataclass(frozen=True)
class Obstacle:
    """Holds the reason why environments cannot step on the GPU."""

    why: str
    cure: str
    surprising: bool
    """True: env.device=auto adds a note, because a card and an engine exist but cannot be used."""


def obstacle(factory: EnvFactory, machine: Machine) -> Obstacle | None:
    """Returns why environments of `factory` cannot step on the GPU of `machine`, or None."""
    spec = factory.spec
    if not machine.gpus:
        why = machine.notes[0] if machine.notes else "no GPU was found that the installed torch can use"
        return Obstacle(why, "give env.device=cpu or leave it auto", False)
    if not spec.gpu:
        return Obstacle(
            f"{spec.name} has no GPU engine",
            "give env.device=cpu or leave it auto: its environments step on the CPU, policy and learner run on the "
            "GPU",
            False,
        )
    if missing := card_obstacle(machine):
        return missing
    found = gpu_obstacle(factory)
    return Obstacle(*found, True) if found else None


def card_obstacle(machine: Machine) -> Obstacle | None:
    """Returns why the GPU of `machine` cannot step environments that have a GPU engine, or None."""
    card = machine.gpus[0]
    if card.vendor != "nvidia":
        return Obstacle(
            f"{card.name} runs under ROCm, which has no NVRTC to compile the environments' rules with",
            "give env.device=cpu or leave it auto: environments step on the CPU, policy and learner run on the GPU",
            True,
        )
    if not machine.nvrtc:
        return Obstacle("the package cuda-bindings is not installed", install_extra("gpu"), True)
    if 0 < machine.driver[0] < machine.nvrtc:
        return Obstacle(
            f"NVIDIA's driver is for CUDA {machine.driver[0]}.{machine.driver[1]}, too old for "
            f"NVRTC {machine.nvrtc}",
            f"install driver {DRIVERS.get(machine.nvrtc, 'of that version')} or newer, or "
            + install_packages(f"cuda-bindings=={machine.driver[0]}.*"),
            True,
        )
    return None


@dataclass(frozen=True)
class Wish:
    """Holds a key that supports only one value with environments on the GPU."""

    path: str
    needed: object
    """Its value with GPU environments."""
    why: str


WISHES = (
    Wish("vector.backend", "gpu", "environments on the learner's device have one backend"),
    Wish("vector.zero_copy", True, "the rows are written in place, there is no copy to make"),
    Wish("vector.async_factor", 1, "all environments step at once"),
    Wish("env.action_repeat", 1, "environments on the GPU take each action once"),
    Wish("trainer.cpu_offload", False, "environments on the GPU write their rows there"),
)
PREFERENCES = ("vector.backend", "vector.async_factor")
"""Keys of these whose values from a profile or recipe do not keep environments off the GPU; typed values do."""


def cpu_wishes(config: Config, typed: Callable[[str], bool]) -> list[Wish]:
    """Returns the keys whose values need environments on the CPU; env.device=auto chooses by them."""
    return [wish for wish in differing(config) if typed(wish.path) or wish.path not in PREFERENCES]


def differing(config: Config) -> list[Wish]:
    """Returns the keys whose values do not work with GPU environments (`auto` always works)."""
    return [wish for wish in WISHES if get(config, wish.path) not in (wish.needed, "auto")]


def said(config: Config, wish: Wish) -> str:
    """Returns `key=value` of a wish."""
    return f"{wish.path}={shown(get(config, wish.path))}"
