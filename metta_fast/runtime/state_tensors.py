"""Checks the tensors of a loaded state: a wrong one is named by its key before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metta_fast.storage.altered import WrongState


def tensor(
    value: Any, key: str, shape: Sequence[int | None], *, like: torch.dtype | None = None, finite: bool = True
) -> Tensor:
    """Returns `value` if it is a tensor as expected.

    Args:
        key: its dotted path, for the message.
        shape: None where any size is allowed.
        like: a dtype of the same kind (bool, whole numbers, floating point); None: floating point.
        finite: refuse NaN and infinity.

    Raises:
        WrongState: it is something else.
    """
    if not isinstance(value, Tensor):
        raise WrongState(key, f"is {type(value).__name__}, expected a tensor")
    same = len(value.shape) == len(shape) and all(
        want is None or want == have for want, have in zip(shape, value.shape)
    )
    if not same:
        raise WrongState(key, f"has the shape {list(value.shape)}, expected {list(shape)}")
    if _kind(value.dtype) != _kind(like or torch.float32):
        raise WrongState(key, f"is {value.dtype}, expected {like or 'floating point'}")
    if finite and value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise WrongState(key, "holds NaN or infinity")
    return value


def _kind(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
