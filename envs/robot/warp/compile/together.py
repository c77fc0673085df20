"""Compiles what a simulation on the GPU needs in several processes, into Warp's cache on disk, and loads it.

    compiled = compile_together(simulation)        # (modules, seconds, processes, folder, note)

Nothing is started where the cache has it all. A module that no child compiled is compiled here, where its error is
raised.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from metta_fast.envs.robot.child import last_line, start_child
from metta_fast.envs.robot.warp.compile.modules import needed
from metta_fast.envs.robot.warp.simulation import Simulation
from metta_fast.machine.hardware import allowed_cores, memory_free

CHILD = Path(__file__).with_name("child.py")
LEAST, MOST = 3, 24
"""Modules from which children are worth their start of two seconds; most of them."""
CHILD_BYTES = 1 << 30
"""Memory of a child while it compiles."""
USUAL_BLOCK = 256
"""Threads of a block of ordinary kernels. Those of others work on tiles, and take long to compile."""


class Compiled(NamedTuple):
    """What was compiled."""

    modules: int = 0
    """Of Warp, that were not in its cache."""
    seconds: float = 0.0
    """With loading those that were."""
    processes: int = 0
    """0: in this process, one after another."""
    folder: str = ""
    """Warp's cache."""
    note: str = ""
    """Why the children did not compile all, for the log."""


class Job(NamedTuple):
    """One module to compile."""

    name: str
    block_dim: int
    identifier: str
    """Warp's name of it with its hash: the child's must be the same."""
    folder: str
    file: str


def compile_together(simulation: Simulation, most: int = MOST) -> Compiled:
    """Compiles and loads all modules that the simulation launches. Does nothing on Warp's CPU device.

    Args:
        most: processes; 0: compile in this one.
    """
    if not simulation.place.is_cuda:
        return Compiled()
    began = time.perf_counter()
    modules = needed(simulation)
    missing = [job for module, block in modules if (job := _job(module, block, simulation.place)) is not None]
    missing.sort(
        key=lambda job: (job.name.startswith("_"), job.block_dim == USUAL_BLOCK)
    )  # the longest first
    count = min(most, len(missing), allowed_cores(), (memory_free() or 1 << 40) // CHILD_BYTES)
    note = ""
    if len(missing) < LEAST or count < 2:
        count = 0
    else:
        note = _in_children(simulation, missing, count)
    for module, block in modules:
        module.load(simulation.place, block)
    return Compiled(len(missing), time.perf_counter() - began, count, str(_cache()), note)


def _cache() -> Path:
    import warp

    return Path(str(warp.config.kernel_cache_dir))


def _job(module: Any, block_dim: int, place: Any) -> Job | None:
    """Returns what to compile, or None if Warp's cache has it."""
    identifier = module.get_module_identifier(block_dim)
    folder = _cache() / identifier
    file = module._get_compile_output_name(place, block_dim=block_dim)
    return None if (folder / file).exists() else Job(module.name, block_dim, identifier, str(folder), file)


def _in_children(simulation: Simulation, jobs: list[Job], count: int) -> str:
    """Has children compile the jobs. Returns why some were not, or ""."""
    todo: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        todo.put(job)
    first = {
        "how": simulation.how,
        "num_envs": simulation.num_envs,
        "arch": simulation.place.get_cuda_compile_arch(),
        "cache": str(_cache().parent),  # Warp adds its version
    }
    with ExitStack() as stack, ThreadPoolExecutor(count, "warp-compile") as pool:
        children = [stack.enter_context(_child(first)) for _ in range(count)]
        try:
            notes = list(pool.map(lambda child: _work_off(child[0], child[1], todo), children))
        finally:  # also after Ctrl-C: the pool waits for its threads, and they for the children
            for process, _ in children:
                process.kill()
    return next((note for note in notes if note), "")


@contextmanager
def _child(first: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yields (process, its words). `first`: the first line that it reads."""
    with tempfile.TemporaryFile() as words:
        process = start_child(
            CHILD,
            (),
            {"CUDA_VISIBLE_DEVICES": "-1"},
            stdin=-1,
            stdout=-1,
            stderr=words,
            text=True,
        )
        try:
            process.stdin.write(json.dumps(first) + "\n")
            yield process, words
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            with suppress(OSError):  # it had died with something unread
                process.stdin.close()


def _work_off(process: Any, words: Any, todo: SimpleQueue[Job]) -> str:
    """Gives the child one job after another. Returns why it did not do one, or ""."""
    note = ""
    try:
        while True:
            job = todo.get_nowait()
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
            if not answer:
                process.wait()
                return f"{job.name}: a process that compiles kernels ended: {last_line(words)}"
            if answer != "done":
                note = f"{job.name}: {answer}"
    except Empty:
        return note
    except OSError as error:
        return f"a process that compiles kernels ended ({error}): {last_line(words)}"
