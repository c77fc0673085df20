"""Chooses the profile of configs/hardware for a machine, by the card's name, else by its memory.

Place in the flow: compose.py uses it for hardware=auto; `metta-fast doctor` shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from metta_fast.machine.hardware import GIB, Gpu, Machine

CARDS = {
    "h200": r"\bH200\b",
    "h100": r"\b(H100|GH200)\b",
    "a100": r"\bA100\b",
    "l40s": r"\bL40S?\b",
    "l4": r"\bL4\b",
    "a10g": r"\bA10G?\b",
    "a40": r"\bA40\b",
    "a6000": r"\bRTX A6000\b",
    "rtx_4090": r"\bRTX 4090\b(?!.*Laptop)",
    "rtx_3090": r"\bRTX 3090\b",
    "rx_7900_xtx": r"\bRX 7900 XTX\b",
}
"""Profile → pattern of its cards' names, as drivers report them. A MIG slice does not match its card."""
PROFILE_MEMORY = 24 * GIB
PROFILE_SIZES = {"trainer.batch_size": 1 << 18, "trainer.minibatch_size": 1 << 15}
"""The sizes of configs/hardware/auto.yaml and the GPU memory they are for."""


@dataclass(frozen=True)
class Pick:
    """Holds the profile chosen for a machine."""

    profile: str
    reason: str
    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Values scaled for a card without a profile: key → (value, why)."""


def choose_profile(machine: Machine) -> Pick:
    """Returns the profile for this machine, and why.

    A card without a profile uses `auto.yaml` (values for 24 GiB), with batch and minibatch scaled by a power of two
    to fit its memory.
    """
    found = machine.describe()
    if not machine.gpus:
        profile = "apple_silicon" if machine.system == "Darwin arm64" else "cpu"
        return Pick(profile, f"found {found}: profile {profile}")
    card = machine.gpus[0]
    for profile, pattern in CARDS.items():
        if re.search(pattern, card.name) and "MIG" not in card.name:
            return Pick(profile, f"found {found}: profile {profile}")
    return _scaled(card, found)


def _scaled(card: Gpu, found: str) -> Pick:
    memory = card.memory * 1.08  # cards report a little less memory than their name says
    scale = 1.0
    while scale < 4 and scale * 2 * PROFILE_MEMORY <= memory:
        scale *= 2
    while scale > 1 / 16 and scale * PROFILE_MEMORY > memory:
        scale /= 2
    why = f"{card.memory / GIB:.0f} GiB of GPU memory: {scale:g} × the values for 24 GiB"
    values = {path: (int(value * scale), why) for path, value in PROFILE_SIZES.items()}
    return Pick(
        "auto",
        f"found {found}: this card has no profile, so hardware/auto.yaml is scaled with its memory",
        values,
    )
