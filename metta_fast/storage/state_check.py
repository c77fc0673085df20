"""Checks a session's first snapshots: they can be saved, and the algorithm's state is a copy.

Without it, an environment whose state cannot be saved would end the run at its first checkpoint, and a state that is no
copy would be saved with later values than those of its step.

Place in the flow: run/saver.py calls `check`; run/run_writer.py names what cannot be saved later on.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from metta_fast.contracts.errors import UserError
from metta_fast.storage.checkpoint import OWN
from metta_fast.storage.encoding import ALLOWED, UnsavableState, encode


def check(states: dict[str, Any], before: dict[str, Any] | None, env: str) -> None:
    """Checks a snapshot's states. Copies no tensor, but joins the environments' state.

    Args:
        states: as `checkpoint.save` takes them, with "algorithm".
        before: those of the snapshot before.
        env: the environment's name, for messages.

    Raises:
        UserError: a value cannot be saved, or the algorithm's state shares memory with that of `before`.
    """
    for name, given in states.items():
        if name not in OWN:  # kept states are large, and ours
            continue
        try:
            encode(given() if callable(given) else given, name)
        except UnsavableState as error:
            raise unsavable(error, env) from error
    if before is not None:
        path = _shared(before["algorithm"], states["algorithm"])
        if path is not None:
            raise UserError(
                f"the algorithm's state_dict() returns its own memory at algorithm{path}: training would change what "
                "is to be saved; return a copy (tensor.clone(), array.copy())"
            )


def unsavable(error: UnsavableState, env: str) -> UserError:
    """Returns the error for a state that cannot be saved."""
    number = re.match(r"env\.envs\.env\[(\d+)\]", error.path)
    whose = "state_dict"
    if error.path.startswith("env"):
        whose = f"the state_dict of {env}" + (f" (environment {number[1]})" if number else "")
    return UserError(
        f"{error}. A checkpoint stores {ALLOWED}, and no subclasses: return such values from {whose}"
    )


def _shared(before: Any, now: Any) -> str | None:
    """Returns the path of the first tensor or array that has the same memory in both states."""
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = [(f"[{key!r}]", before[key], now[key]) for key in now if key in before]
    elif isinstance(before, (list, tuple)) and isinstance(now, (list, tuple)):
        pairs = [(f"[{i}]", *pair) for i, pair in enumerate(zip(before, now))]
    else:
        here = _address(now)
        return "" if here and here == _address(before) else None
    for step, old, new in pairs:
        path = _shared(old, new)
        if path is not None:
            return step + path
    return None


def _address(value: Any) -> int:
    """Returns where the memory of a tensor or array is; 0: it is neither, or has none."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.data_ptr() if value.numel() else 0
    if isinstance(value, np.ndarray) and value.size:
        return int(value.__array_interface__["data"][0])
    return 0
