"""Gives PufferLib 3's interface over our vectors: change the import, keep the code.

    import metta_fast.compat.pufferlib as pufferlib          # import pufferlib
    import metta_fast.compat.pufferlib.emulation             # import pufferlib.emulation
    import metta_fast.compat.pufferlib.vector                # import pufferlib.vector

    errors, spaces, misc ─► puffer_env ─► emulated_spaces ─► emulation ─► vector (over batch, or ours)
                            wrappers

Here are PufferEnv, emulation, vector, spaces, the wrappers, and of pytorch what policies call. PufferLib's trainer
(pufferl), its models and its own environments are not: metta_fast trains (docs/pufferlib.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from metta_fast.compat.pufferlib import emulation, spaces, vector
from metta_fast.compat.pufferlib.errors import APIUsageError, EnvironmentSetupError, InvalidAgentError
from metta_fast.compat.pufferlib.misc import Suppress, silence_warnings, unroll_nested_dict
from metta_fast.compat.pufferlib.puffer_env import PufferEnv, set_buffers
from metta_fast.compat.pufferlib.wrappers import (
    ClipAction,
    EpisodeStats,
    GymToGymnasium,
    MeanOverAgents,
    MultiagentEpisodeStats,
    PettingZooTruncatedWrapper,
    PettingZooWrapper,
    ResizeObservation,
)


def __getattr__(name: str) -> Any:
    """Imports `pytorch`, and torch with it, when it is used; `pufferlib` is the module of the same names."""
    if name in ("pytorch", "pufferlib"):
        return import_module(f"{__name__}.{name}")
    cure = (
        ": metta_fast trains, see docs/pufferlib.md"
        if name in ("pufferl", "models", "ocean", "sweep")
        else ""
    )
    raise AttributeError(f"metta_fast.compat.pufferlib has no {name!r}{cure}")


__version__ = "3.0.0"
"""The version of the interface."""
__all__ = [
    "APIUsageError",
    "ClipAction",
    "EnvironmentSetupError",
    "EpisodeStats",
    "GymToGymnasium",
    "InvalidAgentError",
    "MeanOverAgents",
    "MultiagentEpisodeStats",
    "PettingZooTruncatedWrapper",
    "PettingZooWrapper",
    "PufferEnv",
    "ResizeObservation",
    "Suppress",
    "emulation",
    "set_buffers",
    "silence_warnings",
    "spaces",
    "unroll_nested_dict",
    "vector",
]
