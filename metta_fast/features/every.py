"""When a feature that works in some epochs only is due."""

from __future__ import annotations

import math
import time
from typing import Any

from metta_fast.contracts.errors import UserError


class Every:
    """Due at the end of every `epochs`-th epoch of the run, a resume or not, if `min_s` seconds have passed since.

    Asked again in the same epoch it gives the same answer.
    """

    def __init__(self, epochs: int, min_s: float = 0.0) -> None:
        self._epochs, self._min_s = epochs, min_s
        self._epoch, self._answer, self._last = -1, False, -math.inf

    def due(self, epoch: int) -> bool:
        """`epoch` counts from 0."""
        if epoch != self._epoch:
            now = time.monotonic()
            self._epoch = epoch
            self._answer = (epoch + 1) % self._epochs == 0 and now - self._last >= self._min_s
            if self._answer:
                self._last = now
        return self._answer


def whole_number(path: str, value: Any, low: int) -> int:
    """`value`, if it is a whole number of at least `low`.

    Raises:
        UserError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise UserError(f"{path}={value!r}: expected a whole number of at least {low}")
    return value
