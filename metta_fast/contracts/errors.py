"""Defines the errors whose messages a user reads."""

from __future__ import annotations

import os


class UserError(Exception):
    """A mistake that the user can correct: the message names what was given, what was expected, and the fix.

    The command line prints the message without a traceback and exits with code 2.
    """


def no_threads(count: int, number: int) -> UserError:
    """Returns the error for `count` threads that cannot be started; number: the system's error number."""
    return UserError(
        f"cannot start {count} threads: {os.strerror(number)}. Either the limit of this user or container is reached "
        "(ulimit -u, pids.max), or there is no memory for their stacks (ulimit -s): end other programs, raise the "
        "limit, or use fewer threads (trainer.torch_threads, vector.num_threads, vector.num_workers)"
    )


class NonFiniteError(RuntimeError):
    """NaN or infinity in an observation, reward, action or loss; the message names the field and the environment."""
