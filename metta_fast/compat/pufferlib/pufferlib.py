"""Has the names of the package, for code that imports pufferlib.pufferlib."""

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
    "set_buffers",
    "silence_warnings",
    "unroll_nested_dict",
]
