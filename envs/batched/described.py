"""Describes a batched environment to the factory: leaves, actions, limits, and how its episodes end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_slot import SAME_STEP
from metta_fast.envs.spaces import Part

FINAL = ("final_obs", "final_observation")
"""Entries of info with last observations after a reset in the same step: Gymnasium's and ManiSkill's."""
CRITIC = ("critic", "privileged")
"""Groups of observations that exist in training alone, where there are others: RSL-RL's and Isaac Lab's names."""


@dataclass(frozen=True)
class Described:
    """What a factory has to know of a batched environment. Spaces and leaves are those of one environment."""

    parts: tuple[Part, ...]
    action: ActionSpec
    action_space: Any = None
    """Gymnasium's; None: actions are given as they are, float32 [N, W]."""
    num_envs: int = 0
    """0: any number."""
    autoreset: str = SAME_STEP
    """Gymnasium's AutoresetMode."""
    has_final_obs: bool = True
    max_steps: int = 0
    threshold: float | None = None
    device: str = ""
    """Type of the device that the tensors are on, cpu or cuda; "": any."""
    stagger: bool = False
    declared_kinds: Any = None
    privileged: tuple[str, ...] = ()
    cheap_state: bool = False


def privileged(parts: Sequence[Part], given: Any) -> tuple[str, ...]:
    """Returns the leaves that only the critic reads.

    Args:
        given: the environment's metadata["privileged"]; None: groups named CRITIC, unless there are no others.

    Raises:
        UserError: it is no list of leaves.
    """
    names = [part.name for part in parts]
    if given is None:
        found = tuple(name for name in names if name.partition("/")[0] in CRITIC)
        return found if len(found) < len(names) else ()
    if not isinstance(given, (list, tuple)) or not all(name in names for name in given):
        raise UserError(
            f"metadata['privileged'] is {given!r}: expected a list of leaves among {', '.join(names)}"
        )
    return tuple(name for name in names if name in given)
