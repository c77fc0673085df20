"""Breaks a short training at a point, checks the disk, lets it continue and compares its end with an undisturbed run.

breaker = Breaker(folder, "grid")
breaker.points()                       # of the undisturbed run
breaker.broken(17, "kill")             # what happened, in words; AssertionError: something was lost
breaker.resumed(breaker.middle())      # from here on, the session that is broken continues a killed one
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.chaos.faults import Point, cut, points
from tests.run.chaos.kinds import start, train, words
from tests.run.same import curve, same

HANGS_S = 120.0
KILLS = ("kill", "half", "power")
NAME = "r"


class Breaker:
    """Breaks runs of one kind, one after another, in the folder `case`."""

    def __init__(self, root: Path, kind: str) -> None:
        """Trains the undisturbed run, in this process: sessions forked from it have all that it imported."""
        self._root, self._kind, self._base = root, kind, Path()
        whole, said = root / "whole", io.StringIO()
        with contextlib.redirect_stderr(said):
            assert train(words(kind, whole)) == 0, said.getvalue()
        self._end, self._rows = states(whole), rows(whole)
        self._case = root / "case"

    def points(self) -> list[Point]:
        """The points of a session that nothing breaks; its run ends as the undisturbed one."""
        code, said = self._session(None)
        assert code == 0, said
        self._check_end()
        return points(self._trace)

    def site(self, point: Point) -> str:
        return point.site(self._case)

    def resumed(self, number: int) -> None:
        """Has every later session continue a run that was killed at point `number`."""
        code, said = self._session((number, "kill", None))
        assert code == -signal.SIGKILL, said
        self._base = self._root / "base"
        self._case.rename(self._base)

    def broken(self, number: int, mode: str, error: int | None = None) -> str:
        """Breaks a session at a point, continues its run, and returns what happened.

        Raises:
            AssertionError: something was lost, damaged or different, or a message is wrong.
        """
        code, said = self._session((number, mode, error))
        passed, happened = points(self._trace), "continued"
        if mode in KILLS:
            if code == 0:
                return "it ended before"
            assert code == -signal.SIGKILL, said
            failed = range(number, number + 1)
        else:
            check_message(code, said)
            happened = "told in one line" if code else "the run went on"
            failed = range(number, number + 1 if mode == "once" else len(passed) + 1)
        if mode == "power":
            cut(self._case, self._trace)
        self._check_disk([point for point in passed if point.number not in failed], mode)
        return happened

    def killed(self, after_s: float) -> str:
        """Kills a session some seconds after its start, continues its run, and returns at what it was killed."""
        code, said = self._session(None, after_s)
        assert code in (0, -signal.SIGKILL), said
        assert "Traceback" not in said, said
        passed = points(self._trace) if self._trace.exists() else []
        self._check_disk(passed[:-1], "kill")
        return "it ended before" if code == 0 else self.site(passed[-1]) if passed else "start"

    @property
    def _trace(self) -> Path:
        return self._case.with_suffix(".trace")

    def _session(
        self, fault: tuple[int, str, int | None] | None, kill_after_s: float = 0.0
    ) -> tuple[int, str]:
        """Runs a session in a fresh copy of the base. Returns its exit code and what it said."""
        shutil.rmtree(self._case, ignore_errors=True)
        if self._base.name:
            shutil.copytree(self._base, self._case, symlinks=True)
        else:
            (self._case / "home").mkdir(parents=True)
        self._trace.unlink(missing_ok=True)
        return self._wait(start(self._case, words(self._kind, self._case), fault), kill_after_s)

    def _wait(self, pid: int, kill_after_s: float = 0.0) -> tuple[int, str]:
        began = time.monotonic()
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            seconds = time.monotonic() - began
            if kill_after_s and seconds >= kill_after_s:
                os.kill(pid, signal.SIGKILL)
            elif seconds > HANGS_S:
                os.kill(pid, signal.SIGABRT)  # faulthandler tells where it is
                kill_after_s = kill_after_s or seconds + 5
            time.sleep(min(0.002, max(kill_after_s - seconds, 0.0)) if kill_after_s else 0.005)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        log = self._case.with_suffix(".txt")
        return code, log.read_text() if log.exists() else ""

    def _check_disk(self, passed: list[Point], mode: str) -> None:
        """Checks what a broken session left, continues the run, and checks its end."""
        run = RunDir(self._case / "runs" / NAME)
        there = [checkpoint.read(path).step for _, path in checkpoint.steps(run.checkpoints)]
        before = checkpoint.steps(self._base / "runs" / NAME / "checkpoints") if self._base.name else []
        least = max([saved(passed, flushed=mode == "power"), *(step for step, _ in before)], default=0)
        assert max(there, default=0) >= least, f"step {least} was saved, and {there} are there"
        code, said = self._wait(start(self._case, words(self._kind, self._case)))
        assert code == 0, said
        assert not re.search("Traceback|damaged|^error", said, re.MULTILINE), said
        self._check_end()

    def _check_end(self) -> None:
        same(states(self._case), self._end)
        for row, expected in zip(rows(self._case), self._rows, strict=True):
            assert row == expected, f"a row of metrics is {row}, expected {expected}"


def saved(passed: list[Point], *, flushed: bool) -> int:
    """The newest checkpoint that is complete after these points, 0: none.

    Args:
        flushed: count it only if its name was flushed to the disk.
    """
    newest = step = 0
    for point in passed:
        if (
            point.what == "rename"
            and point.to is not None
            and checkpoint.STEP_NAME.fullmatch(Path(point.to).name)
        ):
            step = int(Path(point.to).name.removeprefix("step_"))
        if not flushed or (point.what == "fsync" and point.path.endswith("/checkpoints")):
            newest = max(newest, step)
    return newest


def check_message(code: int, said: str) -> None:
    """A fault of the disk ends a run with 2 and one line, or the run goes on with warnings."""
    assert code in (0, 2), f"exit code {code}: {said}"
    assert "Traceback" not in said, said
    assert len(re.findall("^error: ", said, re.MULTILINE)) == (code == 2), said


def rows(folder: Path) -> list[dict[str, float]]:
    """A run's metrics, but for evaluations: a session that had none evaluates at its end."""
    return [
        {name: value for name, value in row.items() if not name.startswith("eval/")}
        for row in curve(folder / "runs" / NAME)
    ]


def states(folder: Path) -> dict[str, Any]:
    """All of a run's newest checkpoint."""

    def fail(text: str) -> None:
        raise AssertionError(text)

    found = checkpoint.latest(RunDir(folder / "runs" / NAME).checkpoints, fail)
    assert found is not None
    kept = {name: state.make() for name, state in found.kept().items()}
    return kept | {"step": found.step} | {name: found.load(name) for name in ("algorithm", "env")}
