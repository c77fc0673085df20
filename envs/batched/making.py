"""Calls what makes batched environments, and says what is wrong where that fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from metta_fast.config.extension import described as in_words
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.machine.installation import install_packages


def made(make: Callable[[int], Any], num_envs: int) -> Any:
    """Returns what the user's function makes. Raises UserError if it fails."""
    try:
        return make(num_envs)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise UserError(f"a batch of {num_envs} environments could not be made: {in_words(error)}") from error


def close(env: Any) -> None:
    """Closes an environment; a failure is nothing to the caller."""
    with suppress(Exception):
        env.close()


def check_jax(env: Any) -> None:
    """Raises UserError if jax is not installed, with the command that installs it."""
    if find_spec("jax") is None:
        inner = env[0] if isinstance(env, tuple) else env
        raise UserError(
            f"{type(inner).__name__} has gymnax's interface, which needs jax, and it is not installed: type "
            f"{install_packages('jax')}"
        )
