"""Fits sizes to each other: the algorithm's own, then the blocks of environments.

A value that the user typed is used, or refused with the nearest values that work. A value from a profile,
recipe or default is a ceiling and is rounded down. Used by resolve.py. It only computes numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from metta_fast.algorithms.registry import kind_of
from metta_fast.config.divisors import divisors
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import SizeChange
from metta_fast.contracts.errors import UserError

__all__ = ["divisors", "fit_sizes"]


def fit_sizes(config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
    """Fits the sizes of `config` in place and returns the changes.

    Args:
        config: with sizes that are numbers, not `auto`.
        typed: whether the user typed a key.

    Raises:
        UserError: a typed value that cannot be used, with the values that can.
    """
    return [*kind_of(config).fit_sizes(config, typed), *_blocks(config, typed)]


def _blocks(config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
    """Lowers the number of blocks to the number of environments."""
    envs, blocks = config.env.num_envs, config.vector.async_factor
    if blocks <= envs:
        return []
    if typed("vector.async_factor"):
        raise UserError(
            f"vector.async_factor={blocks} blocks need as many environments, but env.num_envs={envs}; "
            f"try vector.async_factor={envs}, or env.num_envs={blocks}"
        )
    config.vector.async_factor = envs
    return [SizeChange("vector.async_factor", envs, f"{blocks} lowered to env.num_envs={envs}")]
