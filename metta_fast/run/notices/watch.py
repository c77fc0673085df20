"""Watches a cloud's metadata service in a thread, and ends the run in time.

    watch = Watch(place.service, end)
    …  watch.news(), watch.take_save()     # at each boundary: what to log, and whether to save
    watch.close()

Place in the flow: trainer.py holds one while it trains.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Python's HTTP comes with it, which a machine without a service need not import
    from metta_fast.run.notices.notice import Notice, Service

BEFORE_S = 120.0
"""A run whose machine ends at a known later time ends this many seconds before it."""
SLOWEST_S = 20.0
"""Longest wait between two looks, while the service does not answer."""
FAILURES = 5
"""A service that did not answer this often in a row is reported, once."""


class Watch:
    """Asks a service until it announces the machine's end, or `close`."""

    def __init__(self, make: Callable[[], Service], end: Callable[[str], None]) -> None:
        """Starts the thread.

        Args:
            make: makes the service, in the thread, so that the run's start does not wait for imports.
            end: called from the thread, once, with the reason why the run has to end.
        """
        self._save = threading.Event()
        self._make, self._end = make, end
        self._news: deque[str] = deque()
        self._seen: set[Notice] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mf-notices", daemon=True)
        self._thread.start()

    def news(self) -> list[str]:
        """Returns what came since the last call, for the log."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def take_save(self) -> bool:
        """Returns whether a notice came since the last call for which the state should be saved."""
        wanted = self._save.is_set()
        self._save.clear()
        return wanted

    def close(self) -> None:
        """Ends the thread: at once, or when the request on its way has been answered or timed out."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        service = self._make()
        failures, wait = 0, 0.0
        while not self._closed.wait(wait):
            try:
                notices = service.look()
            except (
                Exception
            ) as error:  # of any kind: a training does not end because a service is out of order
                failures += 1
                if failures == FAILURES:
                    self._news.append(
                        f"the metadata service does not answer ({error}); it is asked again, and SIGTERM still "
                        "saves (run.notices=none: it is not asked)"
                    )
                wait = min(service.every_s * 2 ** min(failures, 10), SLOWEST_S)
                continue
            failures, wait = 0, service.every_s
            if self._see(notices):
                return

    def _see(self, notices: list[Notice]) -> bool:
        """Keeps notices for the log; returns whether one of them ended the run."""
        for notice in notices:
            late = notice.by is None or notice.by - time.time() <= BEFORE_S
            if notice.end == "now" or (notice.end == "before" and late):
                self._end(notice.said())
                return True
            if notice not in self._seen:
                self._seen.add(notice)
                self._news.append(f"{notice.said()}; the state is saved, and the training continues")
                self._save.set()
        return False
