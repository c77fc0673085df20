"""Errors that are meant for a user's eyes."""

from __future__ import annotations


class UserError(Exception):
    """A mistake the user can mend: the message says what was given, what was expected, and the cure.

    The command line prints the message without a traceback and exits with code 2.
    """


class NonFiniteError(RuntimeError):
    """NaN or infinity in an observation, reward, action or loss: names the field and the environment."""
