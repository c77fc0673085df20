"""Measures the time of one environment's step, in a process of its own.

    seconds = measure_step(factory)

    parent ──Popen──► child: unpickle the factory, make environment 0, reset, one step ─► "made", then timed steps
      │◄───── pipe: a line each time ────────┤     without input or output; ended with all that it started

An environment that raises, hangs, exits, crashes or prints does so in the child, before the run starts. The child
plays random actions for a tenth of a second.

Place in the flow: resolve/step_cost.py asks and classifies. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import cloudpickle
import numpy as np

from metta_fast.contracts.env import EnvError
from metta_fast.contracts.player import uniform
from metta_fast.contracts.slab import slab_rows, slab_size
from metta_fast.machine.process_group import end_group, has_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metta_fast.contracts.env import Array, EnvBatch, EnvFactory, EnvSpec

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
from metta_fast.vector.step_time import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""


class Unmeasured(Exception):
    """Reports why a step could not be timed, as a clause: "it raised ValueError: …"."""


class TooSlow(Unmeasured):
    """Reports that the timed steps did not end within STEPS_S."""


def measure_step(factory: EnvFactory, patience_s: float = MAKE_S) -> float:
    """Returns the seconds that one environment takes for a step, with all of its agents.

    Args:
        patience_s: seconds for it to be ready, MAKE_S at most.

    Raises:
        TooSlow: the steps do not end in time.
        Unmeasured: the environment raises or exits, is not ready in MAKE_S, or cannot be sent to another process.
    """
    try:
        payload = cloudpickle.dumps(factory)
    except Exception as error:
        raise Unmeasured(f"it cannot be sent to another process: {type(error).__name__}: {error}") from None
    try:
        with tempfile.TemporaryFile() as given:
            given.write(payload)
            given.flush()
            return _ask_child(given.fileno(), min(MAKE_S, patience_s))
    except OSError as error:
        raise Unmeasured(f"no process could be started: {error.strerror}") from None


def _ask_child(given: int, patience_s: float) -> float:
    read, write = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(given), str(write), json.dumps(sys.path)],
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
        patience = 0.0
        try:
            lines = _Lines(read, process)
            if lines.next(patience_s) is None:
                raise Unmeasured(f"it is not ready after {patience_s:g} s")
            seconds = lines.next(STEPS_S)
            if seconds is None:
                raise TooSlow(f"its steps do not end within {STEPS_S:g} s")
            patience = CLOSE_S
            return float(seconds)
        finally:
            end_group(process, patience)
    finally:
        os.close(read)


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


def main(given: int, answers: int) -> None:
    """Runs the child: writes "made" and "seconds …", or "error …", and closes the environment."""
    from metta_fast.envs.native._sync import die_with_parent, name_process

    die_with_parent()
    name_process("mf-step-time")
    os.set_inheritable(answers, False)

    def say(text: str) -> None:
        os.write(answers, (" ".join(text.split())[:2000] + "\n").encode(errors="replace"))

    try:
        with os.fdopen(given, "rb", closefd=False) as file:
            file.seek(0)
            factory = cloudpickle.loads(file.read())
        batch = factory.make_batch(0, 1, 1)
        _time(batch, factory.spec, say)
        batch.close()
    except EnvError as error:
        say(f"error {error}")
    except BaseException as error:
        say(f"error it raised {type(error).__name__}" + (f": {error}" if str(error) else ""))
    finally:
        os._exit(0)


def _time(batch: EnvBatch, spec: EnvSpec, say: Callable[[str], None]) -> None:
    agents = spec.agents_per_env
    rows = slab_rows(spec, agents, np.zeros(slab_size(spec, agents), np.uint8))
    own: list[float] = []
    batch.bind(rows)
    batch.reset(0)
    actions = random_actions(spec, 256)
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
    say(f"seconds {fastest_stretch(own or times)!r}")


def fastest_stretch(times: list[float]) -> float:
    """Returns the median of the fastest of CHUNKS stretches of `times` (seconds)."""
    parts = np.array_split(np.array(times), min(CHUNKS, len(times)))
    return float(min(np.median(part) for part in parts))


def random_actions(spec: EnvSpec, count: int) -> Iterator[Array]:
    """Yields rows [agents, width] of actions within the bounds, `count` different ones over and over."""
    agents = spec.agents_per_env
    drawn = uniform(spec.action, count * agents, np.random.default_rng(0))
    while True:
        yield from drawn.reshape(count, agents, -1)
