"""Checks keys of env.* that concern action masks against the environment.

Place in the flow: metta_fast.envs.make_factory asks, and resolve once more where a mask was found in info.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig
    from metta_fast.contracts.env import EnvFactory

NAME = "action_mask"
"""Key of the mask in a Dict observation and in `info`, with env.action_mask=auto."""
WRONG = "gave a wrong value: action mask ("
"""Part of the message for a mask of a wrong form."""
WITHOUT = ("none", "absent")
"""Values of env.action_mask for environments without a mask."""


def check_masks(config: EnvConfig, factory: EnvFactory) -> None:
    """Raises UserError for a setting that does not fit the environment's action masks."""
    given = config.action_mask
    if given not in ("auto", *WITHOUT) and getattr(factory, "mask", None) is None:
        raise UserError(
            f"env.action_mask={given} has no effect on {factory.spec.name}: it is for Python environments, whose masks "
            "are in an observation, in info or in a method; leave it out"
        )
    if getattr(factory, "pads_choices", False) and getattr(factory, "mask", None) is None:
        return  # env.pad: what an agent lacks is masked whatever the environment gives, and alike in every step
    if given in WITHOUT and factory.spec.action_mask:
        raise UserError(
            f"env.action_mask={given} has no effect on {factory.spec.name}, whose factory gives the masks itself; "
            "leave it out"
        )
    if factory.spec.action_mask and config.action_repeat > 1:
        raise UserError(
            f"env.action_repeat={config.action_repeat}: {factory.spec.name} gives action masks, and a repeated action "
            "may be illegal in the next step; give env.action_repeat=1, or env.action_mask=none"
        )
