"""Uploads a run's states and files in one background thread, which training never waits for.

    uploads = Uploads(store, lease, folder, digits, saved=step, keep=3)
    uploads.state(path, step)        # after each checkpoint: the newest one waits; it replaces one that still waits
    uploads.news()                   # at each boundary: lines for the log
    uploads.finish(seconds)          # at the end: the newest state first, then everything else
    uploads.close()

A bucket that fails is tried again with growing waits. It is reported once, and once when it works again; nothing is
lost locally, and the next upload, or the run's next session, uploads what is missing.

Place in the flow: run/run_writer.py has one, at rank 0.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metta_fast.storage import checkpoint
from metta_fast.storage.remote.files import RemoteError
from metta_fast.storage.remote.lease import InUse, Lease, LeaseLost
from metta_fast.storage.remote.run_files import RunFiles
from metta_fast.storage.remote.run_store import METRICS, RunStore
from metta_fast.storage.run_folder import RunDir

FILES_S = 60.0
"""Seconds between two uploads of files that are not states."""
WAITS_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds until the next try after so many failures in a row; the last one for all further ones."""
END_WAIT_S = 2.0
"""Longest of these waits at the end of a run."""
SAID_AFTER = 2
"""Failures in a row after which they are reported: one alone is common."""


class _Superseded(Exception):
    """At the end of a run, a newer state waits than the one on its way."""


class _OutOfTime(Exception):
    """No time is left for what is not yet uploaded."""


@dataclass(frozen=True)
class _Waiting:
    """A checkpoint to upload."""

    step: int
    path: Path


class Uploads:
    """Uploads until `close`."""

    def __init__(
        self, store: RunStore, lease: Lease, folder: RunDir, digits: str, *, saved: int, keep: int
    ) -> None:
        """Starts the thread.

        Args:
            lease: taken, or to be taken once remote storage answers.
            digits: the run's (storage/run_identity.py).
            saved: step of the checkpoint that the session continues from; later states there are put aside, and the
                checkpoint is uploaded if it is not there. −1: none.
            keep: number of newest states that are kept there, besides the best.
        """
        self._store, self._lease, self._folder, self._digits = store, lease, folder, digits
        self._saved, self._keep = saved, keep
        self._files = RunFiles(store.files, folder.path)
        self._there: int | None = None
        """Step of the newest state that is uploaded; None: unknown yet."""
        self._attached = False
        self._waiting: _Waiting | None = None
        self._current: _Waiting | None = None
        self._files_due = time.monotonic()
        self._failures, self._error = 0, ""
        self._began = False
        """Whether a part or file was begun in this try."""
        self._said = False
        self._over: str | None = None
        """Why nothing is uploaded any more."""
        self._finishing = self._done = self._closed = False
        self._deadline = float("inf")
        self._worked = time.monotonic()
        """When remote storage last did what it was asked."""
        self._news: deque[str] = deque()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="mf-uploads", daemon=True)
        self._thread.start()

    # ── the training's side ──

    def state(self, path: Path, step: int) -> None:
        """Uploads a checkpoint when its turn comes; one that still waits is left out for it."""
        with self._changed:
            self._waiting, self._done = _Waiting(step, path), False
            self._changed.notify_all()

    def news(self) -> list[str]:
        """Returns what came since the last call, for the log."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def held(self) -> frozenset[Path]:
        """Returns the checkpoints that must not be deleted yet."""
        with self._changed:
            return frozenset(one.path for one in (self._waiting, self._current) if one is not None)

    def finish(
        self, seconds: float, quiet_s: float, hurry: Callable[[], bool] = lambda: False
    ) -> tuple[bool, str]:
        """Uploads the newest state, then everything else.

        Args:
            seconds: longest time.
            quiet_s: longest time in which remote storage does nothing that it is asked.
            hurry: asked twice a second: whether to give up.

        Returns:
            Whether everything is uploaded, and a line on what is not.
        """
        began = time.monotonic()
        with self._changed:
            self._finishing, self._done = True, False
            self._deadline, self._worked = began + seconds, began
            self._changed.notify_all()
            while not self._done and self._over is None:
                now = time.monotonic()
                until = min(self._deadline, self._worked + quiet_s)
                if now >= until or not self._thread.is_alive() or hurry():
                    break
                self._changed.wait(min(until - now, 0.5))
            self._deadline = min(self._deadline, time.monotonic())
            return self._done and self._over is None, self._result()

    def close(self) -> None:
        """Ends the thread, which is not waited for if remote storage hangs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=1.0)
        self._lease.release()

    def _result(self) -> str:
        where, steps = self._store.address, checkpoint.steps(self._folder.checkpoints)
        newest = steps[-1][0] if steps else None
        if self._done and self._over is None:
            state = f"the state of step {newest} and " if newest is not None else ""
            return f"uploaded to {where}: {state}all files of the run"
        why = self._over or (self._error if self._failures else "there was no time left")
        missing = []
        if newest is not None and newest != self._there:
            there = (
                "unknown" if self._there is None else f"step {self._there}" if self._there >= 0 else "none"
            )
            missing.append(f"the state of step {newest} (the newest there: {there})")
        files = self._files.changed(all_now=True)
        if files:
            more = f" and {len(files) - 4} more" if len(files) > 4 else ""
            missing.append(f"{', '.join(files[:4])}{more}")
        what = "; ".join(missing) or "the best state"
        again = "" if self._over else f". resume={self._folder.path} uploads it"
        return f"not uploaded to {where}: {what}: {why}. It is in {self._folder.path}{again}"

    # ── the thread's side ──

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._has_work():
                    self._changed.wait(self._idle_s())
                if self._closed:
                    return
            try:
                self._work()
                self._succeeded()
            except LeaseLost as lost:
                self._end(f"{lost} has continued this run and uploads it now")
                return
            except InUse as error:
                self._end(str(error))
                return
            except (_Superseded, _OutOfTime):
                continue
            except (
                Exception
            ) as error:  # of any kind: a training does not end because a bucket is out of order
                self._failed(error)

    def _has_work(self) -> bool:
        if self._finishing:
            return not self._done and time.monotonic() < self._deadline
        return not self._attached or self._waiting is not None or time.monotonic() >= self._files_due

    def _idle_s(self) -> float | None:
        return None if self._finishing else max(self._files_due - time.monotonic(), 0.01)

    def _work(self) -> None:
        """Does the most urgent thing."""
        self._began = False
        if not self._attached:
            self._attach()
        with self._changed:
            self._current, self._waiting = self._waiting, None
        try:
            if self._current is not None:
                self._upload(self._current)
            elif self._finishing or time.monotonic() >= self._files_due:
                self._files.sync(self._between_files, all_now=self._finishing)
                self._files_due = time.monotonic() + FILES_S
                if self._finishing:
                    self._upload_best()
                    with self._changed:
                        self._done = self._waiting is None and not self._files.changed(all_now=True)
                        self._changed.notify_all()
        except BaseException:
            with self._changed:  # it waits again, unless a newer one does
                self._waiting = self._waiting or self._current
            raise
        finally:
            with self._changed:
                self._current = None

    def _attach(self) -> None:
        """Finds out what is there, and puts aside what is later than the state that the run continued from."""
        self._lease.take(watch=False)
        found = self._store.run_id()
        if found is None:
            self._store.write_id(self._digits)
        elif found != self._digits:
            raise LeaseLost("another run")
        aside = self._store.set_aside(self._saved)
        if aside:
            self._news.append(
                f"states after step {self._saved} were put aside in {self._store.address}: {aside}"
            )
        steps = self._store.steps()
        self._there = steps[-1] if steps else -1
        self._store.parts(again=True)
        local = dict(checkpoint.steps(self._folder.checkpoints))
        if self._saved in local and self._saved not in steps:
            with self._changed:
                self._waiting = self._waiting or _Waiting(self._saved, local[self._saved])
        self._attached = True

    def _upload(self, what: _Waiting) -> None:
        path = what.path
        try:
            names = sorted(json.loads((path / "manifest.json").read_text())["files"])
            score = json.loads((path / "meta.json").read_text()).get("score")
            files = [(name, path / name) for name in (*names, "manifest.json")]
            if self._folder.metrics.exists():
                files.append((METRICS, self._folder.metrics))
            self._store.save(what.step, files, self._digits, score, self._between_parts, self._lease.look)
        except FileNotFoundError:  # deleted by somebody, or set aside by a resume
            self._news.append(f"{path} is gone: it was not uploaded")
            return
        self._there = max(what.step, -1 if self._there is None else self._there)
        self._lease.look()
        self._store.prune(self._keep)

    def _upload_best(self) -> None:
        """Uploads the best checkpoint if it is not there: it may have been left out for a newer one."""
        paths = {path: step for step, path in checkpoint.steps(self._folder.checkpoints)}
        best = checkpoint.best(list(paths))
        if best is not None and paths[best] not in self._store.steps():
            there = self._there
            self._upload(_Waiting(paths[best], best))
            self._there = there

    def _between_parts(self) -> None:
        if self._began:  # the part before went up
            self._worked = time.monotonic()
        self._began = True
        self._lease.check()
        if self._finishing:
            if self._closed or time.monotonic() > self._deadline:
                raise _OutOfTime
            if self._waiting is not None:
                raise _Superseded

    def _between_files(self) -> None:
        self._between_parts()
        if self._waiting is not None:
            raise _Superseded

    def _succeeded(self) -> None:
        with self._changed:
            self._worked = time.monotonic()
            if self._said:
                self._news.append(f"uploads to {self._store.address} work again")
            self._failures, self._said = 0, False

    def _failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, RemoteError) else f"{type(error).__name__}: {error}"
        with self._changed:
            self._failures, self._error = self._failures + 1, text
            if self._failures >= SAID_AFTER and not self._said:
                self._said = True
                self._news.append(
                    f"uploads to {self._store.address} fail ({text}); the training continues, everything is in "
                    f"{self._folder.path}, and they are tried again"
                )
            if self._files_due <= time.monotonic() and self._waiting is None:
                self._files_due = time.monotonic()
            wait_s = WAITS_S[min(self._failures, len(WAITS_S)) - 1]
            until = time.monotonic() + wait_s
            while not self._closed:
                left = (
                    min(until, time.monotonic() + END_WAIT_S if self._finishing else until) - time.monotonic()
                )
                if left <= 0:
                    return
                was = self._finishing
                self._changed.wait(left)
                if self._finishing and was:
                    return

    def _end(self, why: str) -> None:
        with self._changed:
            self._over = why
            self._news.append(f"nothing more is uploaded to {self._store.address}: {why}")
            self._changed.notify_all()
