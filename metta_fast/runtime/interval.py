"""When something that is done every so many epochs is due. Asked by the run at its boundaries, and by features.

interval = Interval(100, min_s=30.0)
if interval.due(epochs_done): …
"""

from __future__ import annotations

import math
import time


class Interval:
    """Is due after `epochs` epochs and at least `min_s` seconds, at the latest after `max_s` seconds.

    Asked again in the same epoch it gives the same answer.
    """

    def __init__(
        self, epochs: int, *, min_s: float = 0.0, max_s: float = math.inf, start: int | None = 0
    ) -> None:
        """Starts to count.

        Args:
            epochs: 0 means never.
            start: epochs done by now (a resumed run does not start at 0); None: unknown, so counting starts at the
                run's last multiple of `epochs`, and no seconds are waited for the first time.
        """
        self._epochs, self._min_s, self._max_s = epochs, min_s, max_s
        self._asked: int | None = None
        self._answer = False
        self._met = False
        """Whether it was due once."""
        self._start = start
        self._since = time.monotonic() if start is not None else -math.inf

    def restart(self, epoch: int) -> None:
        """Counts from here."""
        self._start, self._since = epoch, time.monotonic()

    def due(self, epoch: int, *, last: bool = False) -> bool:
        """Returns whether it is time, and if so counts from here.

        Args:
            epoch: epochs done, this one included.
            last: the run ends with this epoch, at which it is due if it never was: a short run has each thing once.
        """
        if self._epochs == 0:
            return False
        if epoch != self._asked:
            self._asked, self._answer = epoch, self._is_time(epoch) or (last and not self._met)
            if self._answer:
                self._met = True
                self.restart(epoch)
        return self._answer

    def _is_time(self, epoch: int) -> bool:
        if self._start is None:
            self._start = (epoch - 1) // self._epochs * self._epochs
        waited = time.monotonic() - self._since
        if math.isfinite(waited) and waited >= self._max_s:
            return True
        return epoch - self._start >= self._epochs and waited >= self._min_s
