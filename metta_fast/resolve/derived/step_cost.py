"""Looks at an environment before a run: env.step_cost=auto becomes cheap, medium or slow, env.step_waits no,
threads or workers, and a mask in info is found.

Only the class has an effect on other keys, not the measured time, so a repeated command gives the same run unless the
time is near a border of two classes; typing the class settles that. Used by resolve.py.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.device_vector import DeviceFactory
from metta_fast.contracts.env import EnvFactory
from metta_fast.envs import OWN_STEP_COST, is_ours
from metta_fast.vector.first_look import Seen, TooSlow, look

CHEAP_S, MEDIUM_S = 20e-6, 1e-3
"""Seconds below which a step is cheap, and medium."""
IMPORT_S = 5.0
"""Seconds for Python and the imports, beside the time that an environment may take to be made."""
UNKNOWN = "medium"
"""The class of an environment whose steps cannot be measured."""


def first_look(
    config: EnvConfig, factory: EnvFactory | DeviceFactory, worker_timeout_s: float = math.inf
) -> Seen:
    """Runs the environment in a process of its own, where something is to be found out by that.

    Args:
        worker_timeout_s: seconds after which an environment that is being made counts as hung.
    """
    timed = config.step_cost == "auto"
    if is_ours(config) or not _steps_alone(factory):
        return Seen()
    if not timed and not getattr(factory, "mask_unknown", False):
        return Seen()
    return look(factory, IMPORT_S + worker_timeout_s, timed=timed)


def step_cost(
    config: EnvConfig, factory: EnvFactory | DeviceFactory, seen: Seen
) -> tuple[str, str, str | None]:
    """Returns the class, how it was found, and a note for the user or None.

    Args:
        config: of the environment; `step_cost` is auto.
        seen: by `first_look`.
    """
    if is_ours(config):
        return OWN_STEP_COST[config.factory], f"known for {config.factory}", None
    if not _steps_alone(factory):
        return "cheap", "not measured: they step together on the learner's device", None
    if isinstance(seen.failure, TooSlow):
        return "slow", f"measured: {seen.failure}", None
    if (error := seen.failure) is not None:
        note = (
            f"env.step_cost={UNKNOWN} is assumed: the time of a step of {factory.spec.name} could not be measured: "
            f"{error}. env.step_cost=cheap, medium or slow sets it"
        )
        return UNKNOWN, f"assumed: {error}", note
    return classify(seen.seconds), f"measured: {_in_words(seen.seconds)} a step", None


def step_waits(config: EnvConfig, factory: EnvFactory | DeviceFactory, seen: Seen) -> tuple[str, str]:
    """Returns how a step waits (metta_fast/vector/choose.py), and how that was found.

    Args:
        config: of the environment; `step_waits` is auto, and `step_cost` as the user gave it.
        seen: by `first_look`.
    """
    if not _steps_alone(factory) or factory.spec.native or is_ours(config):
        return "no", "an environment of ours computes" if is_ours(config) else "not a Python environment"
    if not seen.seconds:
        why = "could not be measured" if seen.failure else "not measured: env.step_cost is given"
        return "no", why
    what = {
        "no": "a step computes",
        "threads": "a step waits, and other threads run meanwhile",
        "workers": "a step waits, but other threads of its process do not run meanwhile",
    }[seen.waits]
    return seen.waits, f"measured: {what}"


def _steps_alone(factory: EnvFactory | DeviceFactory) -> TypeGuard[EnvFactory]:
    """Returns whether environments step on the CPU, one apart from another."""
    return isinstance(factory, EnvFactory) and not factory.spec.device_rows


def classify(seconds: float) -> str:
    """Returns the class of a step that takes so many seconds."""
    return "cheap" if seconds < CHEAP_S else "medium" if seconds < MEDIUM_S else "slow"


def _in_words(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
