"""Looks at one environment in a process of its own: how long a step takes, if it waits, if info has an action mask.

    seen = look(factory)
    seen.seconds, seen.waits, seen.mask

    parent ──Popen──► child: unpickle the factory, make environment 0, reset ─► "mask", one step ─► "made", timed steps
                             ─► "seconds", "waits", "overlap" (waiting.py)
      │◄───── pipe: a line each time ────────┤     without input or output; ended with all that it started

An environment that raises, hangs, exits, crashes or prints does so in the child, before the run starts. The child
plays random legal actions for a tenth of a second, and twice as long again if a step may wait.

Place in the flow: resolve/derived/step_cost.py asks and classifies. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from metta_fast.contracts.env import EnvError
from metta_fast.contracts.player import check_legal, uniform
from metta_fast.contracts.slab import new_rows
from metta_fast.machine.process_group import end_group, has_ended
from metta_fast.vector.first_look.waiting import PATIENCE_S, step_waits, steps_overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metta_fast.contracts.env import Array, EnvBatch, EnvFactory, EnvSpec, Rows

MAKE_S = 20.0
"""Seconds that the child has to import and make the environment, to reset it and to step it once."""
STEPS_S = 2.0
"""Seconds that the child has for the timed steps."""
TIMED_S = 0.1
"""Seconds over which steps are timed."""
FEWEST, MOST = 2, 5000
"""Steps that are timed at least and at most."""
CHUNKS = 5
"""The timed steps are cut into this many stretches. The fastest counts: other programs only make steps slower."""
CLOSE_S = 1.0
"""Seconds that the environment has to close."""
LOOK_S = 0.05
"""Seconds between two checks that the child is alive."""

BOOT = """\
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from metta_fast.vector.first_look import main
main(int(sys.argv[1]), int(sys.argv[2]), timed=sys.argv[4] == "timed")
"""


class Unmeasured(Exception):
    """Reports why a step could not be timed, as a clause: "it raised ValueError: …"."""


class TooSlow(Unmeasured):
    """Reports that the timed steps did not end within STEPS_S."""


@dataclass
class Seen:
    """What was found out about an environment."""

    seconds: float = 0.0
    """Seconds that one environment takes for a step, with all of its agents; 0.0: not measured."""
    waits: str = "no"
    """How the step waits: one of choose.py's WAITS."""
    mask: bool | None = None
    """Whether the info of the first reset has an action mask; None: not known, or the factory says so itself."""
    failure: Unmeasured | None = None
    """Why the look ended early: TooSlow, or the environment raises or exits, is not ready in time, or cannot be sent to
    another process."""


def look(factory: EnvFactory, patience_s: float = MAKE_S, *, timed: bool = True) -> Seen:
    """Makes, resets and steps environment 0 in a process of its own.

    Args:
        patience_s: seconds for it to be ready, MAKE_S at most.
        timed: measure the time of a step. False: only look for the mask.
    """
    seen = Seen()
    try:
        payload = cloudpickle.dumps(factory)
    except Exception as error:
        seen.failure = Unmeasured(f"it cannot be sent to another process: {type(error).__name__}: {error}")
        return seen
    try:
        with tempfile.TemporaryFile() as given:
            given.write(payload)
            given.flush()
            _ask_child(given.fileno(), min(MAKE_S, patience_s), timed, asks_mask(factory), seen)
    except Unmeasured as error:
        seen.failure = error
    except OSError as error:
        seen.failure = Unmeasured(f"no process could be started: {error.strerror}")
    return seen


def asks_mask(factory: Any) -> bool:
    """Returns whether a reset has to show if info has an action mask. (Python environments only.)"""
    mask = getattr(factory, "mask", None)
    return getattr(factory, "mask_unknown", False) or (mask is not None and mask.kind == "info")


def _ask_child(given: int, patience_s: float, timed: bool, mask: bool, seen: Seen) -> None:
    """Starts the child and writes its answers to `seen`. Raises Unmeasured."""
    read, write = os.pipe()
    try:
        what = "timed" if timed else "untimed"
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(given), str(write), json.dumps(sys.path), what],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    "MKL_NUM_THREADS": "1",
                    **os.environ,
                },
                pass_fds=[given, write],
                process_group=0,
            )
        finally:
            os.close(write)
        patience, end = 0.0, time.monotonic() + patience_s
        try:
            lines = _Lines(read, process)
            for word in ["mask"] * mask + ["made"] * timed:
                line = lines.next(end - time.monotonic())
                if line is None:
                    raise Unmeasured(f"it is not ready after {patience_s:g} s")
                if word == "mask":
                    seen.mask = line == "True"
            if timed:
                seconds = lines.next(STEPS_S)
                if seconds is None:
                    raise TooSlow(f"its steps do not end within {STEPS_S:g} s")
                seen.seconds = float(seconds)
                seen.waits = _waits(lines, seen.seconds)
            patience = CLOSE_S
        finally:
            end_group(process, patience)
    finally:
        os.close(read)


def _waits(lines: _Lines, seconds: float) -> str:
    """Reads how a step waits. An environment that fails now, in another thread, only overlaps in other processes."""
    found = "no"
    try:
        if lines.next(PATIENCE_S + 4 * seconds) == "True":
            found = "workers"
            if lines.next(2 * (PATIENCE_S + 4 * seconds)) == "True":
                found = "threads"
    except Unmeasured:
        pass
    return found


class _Lines:
    """Reads the child's lines from the pipe."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self._fd, self._process, self._text = fd, process, b""

    def next(self, patience_s: float) -> str | None:
        """Returns the next line; None: it has not come within patience_s seconds.

        Raises:
            Unmeasured: the child has reported an error, or has ended.
        """
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._text:
            if time.monotonic() > deadline:
                return None
            ended = has_ended(self._process.pid)  # before the last look: what it wrote is then in the pipe
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            ready = poll.poll(0 if ended else LOOK_S * 1000)
            part = os.read(self._fd, 65536) if ready else b""
            self._text += part
            if not part and (ended or ready):
                raise Unmeasured("it ended its process")
        line, _, self._text = self._text.partition(b"\n")
        word, _, rest = line.decode(errors="replace").partition(" ")
        if word == "error":
            raise Unmeasured(rest)
        return rest


# ── in the child ──


def main(given: int, answers: int, timed: bool) -> None:
    """Runs the child: writes "mask …", "made" and "seconds …", "waits …", "overlap …", or "error …", and closes the
    environment."""
    from metta_fast.envs.native._sync import die_with_parent, name_process

    die_with_parent()
    name_process("mf-first-look")
    os.set_inheritable(answers, False)

    def say(text: str) -> None:
        os.write(answers, (" ".join(text.split())[:2000] + "\n").encode(errors="replace"))

    try:
        with os.fdopen(given, "rb", closefd=False) as file:
            file.seek(0)
            factory = cloudpickle.loads(file.read())
        if asks_mask(factory):
            factory, batch, rows = _look_into_info(factory, say)
        else:
            batch, rows = _begin(factory)
        if timed:
            _time(batch, rows, factory.spec, say)
        batch.close()
    except EnvError as error:
        say(f"error {error}")
    except BaseException as error:
        say(f"error it raised {type(error).__name__}" + (f": {error}" if str(error) else ""))
    finally:
        os._exit(0)


def _begin(factory: Any, on_mask: Callable[[], None] | None = None) -> tuple[EnvBatch, Rows]:
    """Makes environment 0 and its rows, and resets it. on_mask: called for a mask in info that is not used."""
    batch, rows = factory.make_batch(0, 1, 1), new_rows(factory.spec, factory.spec.agents_per_env)
    batch.bind(rows)
    if on_mask is not None:
        batch.on_mask(on_mask)
    batch.reset(0)
    return batch, rows


def _look_into_info(factory: Any, say: Callable[[str], None]) -> tuple[Any, EnvBatch, Rows]:
    """Says whether the first reset's info has a mask. Returns the factory that uses one if so, and its environment."""
    found: list[bool] = []
    plain = factory if factory.mask_unknown else factory.with_mask("absent")
    batch, rows = _begin(plain, lambda: found.append(True))
    say(f"mask {bool(found)}")
    if not found:
        return plain, batch, rows
    batch.close()
    masked = factory.with_mask("info")
    return masked, *_begin(masked)


def _time(batch: EnvBatch, rows: Rows, spec: EnvSpec, say: Callable[[str], None]) -> None:
    own: list[float] = []
    actions = random_actions(spec, 256, rows)
    rows.action[:] = next(actions)
    batch.step()
    say("made .")
    if hasattr(batch, "time_steps"):
        batch.time_steps(own)
    times: list[float] = []
    clock = time.perf_counter
    end = clock() + TIMED_S
    while len(times) < MOST and (clock() < end or len(times) < FEWEST):
        rows.action[:] = next(actions)
        ends = not rows.mask.any()  # the next call resets
        start = clock()
        batch.step()
        if not ends:
            times.append(clock() - start)
    seconds = fastest_stretch(own or times)
    say(f"seconds {seconds!r}")

    def step() -> None:
        rows.action[:] = next(actions)
        batch.step()

    waits = step_waits(step, seconds)
    say(f"waits {waits}")
    if waits:
        say(f"overlap {steps_overlap(step, seconds)}")


def fastest_stretch(times: list[float]) -> float:
    """Returns the median of the fastest of CHUNKS stretches of `times` (seconds)."""
    parts = np.array_split(np.array(times), min(CHUNKS, len(times)))
    return float(min(np.median(part) for part in parts))


def random_actions(spec: EnvSpec, count: int, rows: Rows | None = None) -> Iterator[Array]:
    """Yields actions [agents, width] within the bounds: `count` different ones over and over, or with action masks
    those that `rows` allow."""
    agents, rng = spec.agents_per_env, np.random.default_rng(0)
    while spec.action_mask and rows is not None:
        check_legal(rows.action_mask, rows.mask, spec)
        yield uniform(spec.action, agents, rng, rows.action_mask)
    drawn = uniform(spec.action, count * agents, rng)
    while True:
        yield from drawn.reshape(count, agents, -1)
