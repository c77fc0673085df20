"""Runs the tasks of blocks on Python threads. A block becomes ready when its last task has ended.

    pool = ThreadPool(ready, num_blocks, num_threads)
    pool.start(block, tasks)  …  ready.wait(timeout)  …  pool.stop(patience_s)

Used by vector.backend=threads for Python environments. The threads hold this object and the tasks, but no vector: a
vector that is dropped without being closed is collected, and its finalizer stops the threads.
"""

from __future__ import annotations

import errno
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence

from metta_fast.contracts.errors import no_threads
from metta_fast.envs.native._sync import Ready

Task = tuple[int, Callable[[], None]]
"""(the number that names it in `error` and `running`; the work)."""


class ThreadPool:
    """Starts daemon threads, which take any task of any block.

    Raises:
        UserError: the system refuses to start so many threads.
    """

    def __init__(self, ready: Ready, num_blocks: int, num_threads: int) -> None:
        self.error: tuple[BaseException, int] | None = None
        """The first exception of a task, with the task's number; `ready` then reports a fault."""
        self._ready = ready
        self._remaining = [0] * num_blocks
        self._lock = threading.Lock()
        self._current: list[int | None] = [None] * num_threads
        """Each thread's task."""
        self._stopping = False
        self._tasks: queue.SimpleQueue[tuple[int, Task] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        for t in range(num_threads):
            thread = threading.Thread(target=self._serve, args=(t,), name=f"mf-env-{t}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.stop(1.0)
                raise no_threads(num_threads, errno.EAGAIN) from error
            self._threads.append(thread)

    def start(self, block: int, tasks: Sequence[Task]) -> None:
        """Puts the block in flight and has its tasks run."""
        self._remaining[block] = len(tasks)
        self._ready.depart(block)
        for task in tasks:
            self._tasks.put((block, task))

    def running(self) -> list[int]:
        """Returns the numbers of the tasks that are running, in order."""
        return sorted(number for number in self._current if number is not None)

    def lost(self) -> int | None:
        """Returns the number of a task whose thread has ended within it (pthread_exit), or None."""
        for number, thread in zip(self._current, self._threads):
            if number is not None and not _lives(thread):
                return number
        return None

    def stop(self, patience_s: float) -> bool:
        """Ends the threads, each after its present task. Returns False if one has not ended after patience_s."""
        self._stopping = True
        for _ in self._threads:
            self._tasks.put(None)
        end = time.monotonic() + patience_s
        for thread in self._threads:
            if thread is not threading.current_thread() and _lives(
                thread
            ):  # the garbage collector may run in one of them
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() and _lives(thread) for thread in self._threads)

    def _serve(self, thread: int) -> None:
        """Runs a thread."""
        while (found := self._tasks.get()) is not None and not self._stopping:
            block, (number, work) = found
            self._current[thread] = number
            try:
                work()
            except BaseException as error:  # SystemExit too: it would end only this thread, without a word
                self.error = self.error or (error, number)
                self._ready.fault()
                return
            self._current[thread] = None
            with self._lock:
                self._remaining[block] -= 1
                done = self._remaining[block] == 0
            if done:
                self._ready.push(block)


def _lives(thread: threading.Thread) -> bool:
    """Returns whether the system still runs the thread. Python does not notice an end from C."""
    if sys.platform.startswith("linux") and os.path.isdir("/proc/self/task"):
        return os.path.exists(f"/proc/self/task/{thread.native_id}")
    return thread.is_alive()
