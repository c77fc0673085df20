"""Compares our vector backends with other libraries', on environments in Python and on a CartPole in C (`--vector`).

    python benchmark_performance.py --vector
    python benchmark_performance.py --vector --vector-env cartpole,sleep --vector-rival gymnasium --envs 64 --seconds 2

    for each environment (vector_tasks.py) and number of environments
        a child for each side (vector_rivals.py) ─► burn-in ─► rounds in turns ─► rows, ratios     vector_table.py

What cannot be measured has its reason in the table: a library that is not installed, a process for each environment
where the memory does not suffice, a failure. A side whose burn-in took longer than SLOW rounds is not repeated.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from typing import Any

from metta_fast.bench.harness.child_handle import Child, Failed
from metta_fast.bench.harness.libraries import Library
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.bench.stepping.vector_sides import SIDES, Side, Wanted
from metta_fast.bench.stepping.vector_table import VectorReport
from metta_fast.bench.stepping.vector_tasks import TASKS, Task
from metta_fast.machine import hardware

WORKER = (sys.executable, "-m", "metta_fast.bench.stepping.vector_rivals")
BUILD_LIMIT_S = 240.0
"""Time limit for making a side's environments."""
SLOW = 3.0
"""Rounds that a burn-in may take."""
SLOW_S = 2.0
"""Seconds that it may take in any case."""
SHARE = 0.7
"""Part of the free memory that the processes of one side may take."""
PROBE = 2
"""Environments of the child that shows how much memory a process needs."""


def measure(
    report: VectorReport, wanted: Wanted, seconds: float, repeats: int, say: Callable[[str], None]
) -> None:
    """Adds rows and ratios of every environment and number to the report, and what could not be measured."""
    missing: set[Library] = set()
    for name in wanted.tasks:
        task = TASKS[name]
        sides = [s for s in SIDES if name in s.tasks and (s.library is None or s.kind in wanted.rivals)]
        for side in [s for s in sides if s.library is not None and not s.library.version()]:
            assert side.library is not None
            sides.remove(side)
            for envs in wanted.envs:
                report.add_absent(task, envs, side, "absent")
            if side.library not in missing:
                missing.add(side.library)
                report.notes.append(side.library.absent())
        needs: dict[Side, float] = {}
        for envs in wanted.envs:
            _Cell(report, task, envs, seconds, headed(say, f"{task.title}, {envs} envs")).measure(
                sides, repeats, needs
            )


class _Cell:
    """Measures one environment and number of environments."""

    def __init__(
        self, report: VectorReport, task: Task, envs: int, seconds: float, say: Callable[[str], None]
    ) -> None:
        self.report, self.task, self.envs, self.seconds, self.say = report, task, envs, seconds, say
        self.cores = hardware.allowed_cores()
        self.chosen: dict[Side, str] = {}

    def measure(self, sides: Collection[Side], repeats: int, needs: dict[Side, float]) -> None:
        """needs: bytes of one process of a side, where that is known already; filled in here."""
        speeds: dict[Side, list[float]] = {}
        with ExitStack() as stack:
            turns: dict[Side, Child] = {}
            for side in sides:
                child = self._burn_in(side, stack, needs, speeds)
                if child is not None:
                    turns[side] = child
            if turns:
                try:
                    results, notes = in_turns(
                        [partial(child.alone, do="round", seconds=self.seconds) for child in turns.values()],
                        repeats,
                        self.say,
                    )
                except Failed as failed:
                    self.say(f"{failed.why}\n{failed.printed}")
                    self.report.notes.append(f"{self._head}: rounds not repeated: {failed.why}")
                else:
                    self.report.notes += [f"{self._head}: {note}" for note in notes]
                    speeds |= {
                        s: [one["steps_per_s"] for one in r] for s, r in zip(turns, results, strict=True)
                    }
        self.report.add_cell(self.task, self.envs, speeds, self.chosen)

    @property
    def _head(self) -> str:
        return f"{self.task.title}, {self.envs} envs"

    def _burn_in(
        self, side: Side, stack: ExitStack, needs: dict[Side, float], speeds: dict[Side, list[float]]
    ) -> Child | None:
        """Builds a side and runs its first round, which goes into `speeds`. Returns the child if it can be repeated."""
        if side.processes and (why := self._too_large(side, needs)):
            self.report.add_absent(self.task, self.envs, side, "memory")
            self.report.notes.append(f"{self._head}: {side.name}: {why}")
            self.say(f"{side.name}: {why}")
            return None
        child = stack.enter_context(Child(side.name, command=WORKER))
        try:
            ready = child.ask(BUILD_LIMIT_S, do="build", num_envs=self.envs, **self._build(side))
            start = time.monotonic()
            burnt = child.alone(do="round", seconds=self.seconds)
            took = time.monotonic() - start
        except Failed as failed:
            child.close()
            self.report.add_absent(self.task, self.envs, side, "failed")
            self.report.notes.append(f"{self._head}: {side.name} failed: {failed.why}")
            self.say(f"{side.name} failed: {failed.why}\n{failed.printed}")
            return None
        speeds[side] = [burnt["steps_per_s"]]
        self.say(f"{side.name}: {burnt['steps_per_s']:,.0f} steps/s in the burn-in")
        if "chosen" in ready:
            self.chosen[side] = ready["chosen"]
        if took > max(SLOW * self.seconds, SLOW_S):
            child.close()
            return None
        return child

    def _build(self, side: Side) -> dict[str, Any]:
        return {"kind": side.kind, "variant": side.variant, "task": self.task.name, "cores": self.cores}

    def _too_large(self, side: Side, needs: dict[Side, float]) -> str:
        """Returns why a process for each environment does not fit into memory, or ""."""
        if side not in needs:
            with Child(side.name, command=WORKER) as child:
                try:
                    child.ask(BUILD_LIMIT_S, do="build", num_envs=PROBE, **self._build(side))
                    child.ask(do="round", seconds=0.01)
                    needs[side] = child.ask(do="memory")["bytes"]
                except Failed:
                    return ""  # it fails again when it is measured, and is named there
        free = hardware.detect().free
        needed = needs[side] * self.envs
        if free is None or needed <= SHARE * free:
            return ""
        return (
            f"not measured: a process for each environment, of {needs[side] / 2**20:.0f} MiB, needs "
            f"{needed / hardware.GIB:.1f} GiB; {free / hardware.GIB:.1f} GiB are free"
        )
