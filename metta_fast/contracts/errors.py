"""Errors that are meant for a user's eyes."""

from __future__ import annotations

import os


class UserError(Exception):
    """A mistake the user can mend: the message says what was given, what was expected, and the cure.

    The command line prints the message without a traceback and exits with code 2.
    """


def no_threads(count: int, number: int) -> UserError:
    """What is told where `count` threads cannot be started; number: the system's error number."""
    return UserError(
        f"cannot start {count} threads: {os.strerror(number)}. The system allows this user or container no more "
        "(ulimit -u, pids.max), or has no memory for their stacks (ulimit -s): end other programs, raise the limit, "
        "or use fewer (trainer.torch_threads, vector.num_threads, vector.num_workers)"
    )


class NonFiniteError(RuntimeError):
    """NaN or infinity in an observation, reward, action or loss: names the field and the environment."""
