"""Says what is different where a run continues, and what cannot be exact because of it.

    moved(start, place, resolved)     a line for each; none if the session before was in the same place

Place in the flow: run/trainer.py says the lines when it has loaded a checkpoint.
"""

from __future__ import annotations

import torch

from metta_fast.config.keys import get, shown
from metta_fast.metrics.machine_time import META, Place
from metta_fast.resolve.choose_profile import CARDS, choose_profile
from metta_fast.resolve.resolve import Resolved
from metta_fast.storage.checkpoint import Checkpoint

BITS = ("env.num_envs", "env.device", "trainer.device", "trainer.precision", "trainer.torch_threads")
"""Keys that change the bits of a result, though not what is learned."""
OF_MACHINES = (*CARDS, "auto", "cpu", "apple_silicon")
"""Profiles that belong to a machine."""


def moved(start: Checkpoint, place: Place, resolved: Resolved) -> list[str]:
    """Returns lines for the user.

    Args:
        place: where this session trains.
    """
    there, lines = place_of(start), list[str]()
    changes = [f"{there} → {place}"] if there not in (None, place) else []
    saved = start.meta.get("config", {})
    for path in BITS:
        group, _, name = path.partition(".")
        now, then = get(resolved.config, path), saved.get(group, {}).get(name)
        if path == "trainer.torch_threads" and resolved.config.trainer.device != "cpu":
            continue
        if then not in (None, now):
            changes.append(f"{path} {shown(then)} → {shown(now)}")
    if (then := start.meta.get("torch")) not in (None, torch.__version__):
        changes.append(f"torch {then} → {torch.__version__}")
    if changes:
        lines.append(
            f"this session differs from the one before: {', '.join(changes)}. What was learned goes on; the numbers "
            "are from here on not bit for bit those of an undisturbed run"
        )
    before, machine = resolved.groups.get("hardware"), resolved.machine
    if there not in (None, place) and before in OF_MACHINES and machine is not None:
        fitting = choose_profile(machine).profile
        if fitting != before:
            lines.append(
                f"the run keeps the values of hardware={before}, and this machine's are hardware={fitting} (found "
                f"{machine.describe()}): hardware={fitting} takes them"
            )
    return lines


def place_of(start: Checkpoint) -> Place | None:
    """Returns where a checkpoint's session was; None: it is of an older version. MachineTime has checked it."""
    parts = start.meta.get(META, {}).get("parts")
    return Place(parts[-1]["on"], parts[-1]["machine"], parts[-1]["devices"]) if parts else None
