"""Runs a worker process: makes its slices' batches, then serves the board until the process is closed or killed.

`Station.next` steps native slices without Python. It returns for resets, Python environments and messages. Our code
here never imports torch.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn, cast

import cloudpickle
import numpy as np

from metta_fast.config.extension import described
from metta_fast.contracts import progress
from metta_fast.contracts.env import EnvBatch, EnvError, InfoBatch, NativeBatch, NotingBatch
from metta_fast.contracts.slab import slab_rows, slab_size
from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import (
    FAULTY,
    MESSAGE,
    ORPHANED,
    RESET,
    Memory,
    Ready,
    Station,
    die_with_parent,
    name_process,
    report_fault,
)
from metta_fast.machine.output import be_tolerant

if TYPE_CHECKING:
    from metta_fast.vector.job import Job
    from metta_fast.vector.messages import Link

WORDS = 32768
"""Longest traceback that is sent, in bytes."""
CHUNKS_PER_THREAD = 4
PROGRESS_S = 0.1
"""Seconds between two messages that environments are being made, at least."""
MAKING, READY = "making", "ready"
"""What a worker says while it makes its environments, and when all are made."""
LOOK_S = 0.5
"""Seconds between two checks that the launcher is alive, after a failure."""


def main(index: int, job: Job, memory: Memory, link: Link, words: int, launcher: int) -> NoReturn:
    """Runs a worker; never returns. `words`: the pipe for tracebacks. `launcher`: the parent's process id.

    The launcher takes its id before the fork: a worker that asked for its parent's would not notice a launcher that
    had already ended.
    """
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent()
        if os.getppid() != launcher:
            os._exit(1)
        name_process(f"mf-worker-{index}")
        be_tolerant()  # an environment's print must not fail
        os.set_blocking(words, False)  # faulthandler's words must not keep us when nobody reads them
        faulthandler.enable(words)
        faulthandler.register(signal.SIGUSR1, words)
        try:
            _serve(index, job, memory, link, launcher, words)
            code = 0
        except BaseException as error:
            _report(memory, index, words, error)
            while os.getppid() == launcher:
                time.sleep(LOOK_S)  # the parent ends us
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report(memory: Memory, index: int, words: int, error: BaseException) -> None:
    """Reports an exception to the parent: first on the board, then its message and traceback through the pipe."""
    env = error.env if isinstance(error, EnvError) else None
    report_fault(memory, index, -1 if env is None else env)
    _write_traceback(words, error)


def _write_traceback(words: int, error: BaseException) -> None:
    """Writes one line that says what happened, the exception's traceback, and a 0 at its end. Waits while the pipe is
    full: the parent, which knows of the exception already, reads it."""
    named = isinstance(error, EnvError)
    what = str(error) if named else f"raised {described(error)}"
    trace = "".join(traceback.format_exception(error.__cause__ if named and error.__cause__ else error))
    head = (what.partition("\n")[0] + "\n").encode(errors="replace")[:WORDS]
    text = head + trace.encode(errors="replace")[-WORDS:] + b"\0"
    os.set_blocking(words, True)
    while text:
        text = text[os.write(words, text) :]


def _tell_progress(link: Link) -> None:
    """Tells the parent now that environments are being made, and again as they are, at most every PROGRESS_S."""
    last = 0.0

    def tell() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_S:
            last = now
            link.send((os.getpid(), MAKING))

    tell()
    progress.on_made(tell)


def _serve(index: int, job: Job, memory: Memory, link: Link, launcher: int, words: int) -> None:
    factory = cloudpickle.loads(job.factory)
    _tell_progress(link)
    agents = job.spec.agents_per_env
    total = job.envs.count * agents
    slab = np.frombuffer(memory, np.uint8, slab_size(job.spec, total), job.board_size)
    rows = slab_rows(job.spec, total, slab)
    batches: dict[int, EnvBatch] = {}
    for s in job.slices:
        if s.worker == index:
            batches[s.block] = factory.make_batch(job.envs.first + s.start, s.stop - s.start, job.envs.total)
            batches[s.block].bind(rows.slice(s.start * agents, s.stop * agents))
    num_blocks = 1 + max(s.block for s in job.slices)
    jobs = [batches[b].native_job() if b in batches else None for b in range(num_blocks)]
    pool = None
    if job.num_threads > 1 and any(jobs):
        pool = Pool(
            Ready(num_blocks, spin_s=job.spin_s),
            [j or (0, 0, 1) for j in jobs],
            job.num_threads - 1,
            spin_s=job.spin_s,
            chunks=CHUNKS_PER_THREAD * job.num_threads,
            keep=batches,
        )
    station = Station(memory, index, jobs, spin_s=job.spin_s, pool=pool, keep=batches, parent=launcher)
    progress.on_made(None)
    link.send((os.getpid(), READY))
    while True:
        box, kind = station.next()
        if kind == MESSAGE:
            command, argument = link.recv()
            if command == "close":
                try:
                    with ExitStack() as stack:
                        for batch in batches.values():
                            stack.callback(batch.close)
                except BaseException as error:
                    _report(memory, index, words, error)  # the parent reads it when this process has ended
                return
            if command == "state":
                link.send((index, [batch.state_dict() for batch in batches.values()]))
            elif command == "info":
                link.send((index, [cast("InfoBatch", batch).info_sums() for batch in batches.values()]))
            elif command == "notes":
                link.send((index, [cast("NotingBatch", batch).notes() for batch in batches.values()]))
            else:
                for batch, state in zip(batches.values(), argument):
                    batch.load_state_dict(state)
                link.send((index, None))
            continue
        if kind == ORPHANED:
            os.killpg(0, signal.SIGKILL)  # this process and the programs that its environments started
        elif kind == FAULTY:
            cast("NativeBatch", batches[box]).raise_fault()
            raise RuntimeError("a native job reported a fault, but its batch has none")
        elif kind == RESET:
            batches[box].reset(station.seed, stagger=station.stagger)
        else:
            batches[box].step()
        station.finish(box)
