"""Chooses how environments on the CPU are stepped where the user leaves it open.

    choice = choose(spec, num_envs=64, cores=2, waits="threads")
    choice.backend, choice.num_workers, choice.num_threads, choice.why

    environments that all step in a moment     serial, where the caller knows how long they take
    native environments                        threads, one for each core
    … that release Python's lock               threads, one for each core
    Python environments that compute           workers, one for each core
    … that wait, and threads overlap           threads, one for each environment
    … that wait, and only processes overlap    workers, more than cores

Place in the flow: resolve/ and compat/make_vec.py ask; first_look/waiting.py has measured `waits`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metta_fast.contracts.env import EnvSpec

WAITS = ("no", "threads", "workers")
"""Values of env.step_waits: a step computes; it waits, and steps in several threads overlap; only those in several
processes do."""
MOST_THREADS = 512
"""Threads for environments that wait: they share Python's lock (the GIL), which so many keep busy."""
MOMENT_S = 100e-6
"""Seconds that all environments' step takes, one after another, below which waking threads or processes for it takes
longer than they save (docs/benchmark.md, "Vectors beside others")."""
WORKERS_PER_CORE = 16
"""Workers for environments that wait: each takes memory and time to start."""


@dataclass(frozen=True)
class Choice:
    """A backend, and the numbers for it."""

    backend: str
    num_workers: int
    num_threads: int
    why: str
    """Why this backend."""
    why_so_many: str
    """Why so many threads or workers."""


def choose(
    spec: EnvSpec,
    num_envs: int,
    cores: int,
    waits: str = "no",
    backend: str = "auto",
    seconds: float = math.inf,
) -> Choice:
    """Returns the backend and its numbers.

    Args:
        waits: one of WAITS, as measured or typed; ignored for native environments.
        backend: "auto", or the one to find the numbers for.
        seconds: of one environment's step. A run leaves it out: there a worker also shields it from the environment,
            and stepping overlaps the policy.
    """
    waits = "no" if spec.native else waits
    if backend == "auto" and num_envs * seconds < MOMENT_S:
        why = f"{num_envs} steps take {num_envs * seconds * 1e6:.0f} µs: other threads would be woken for too little"
        return Choice("serial", 1, 1, why, why)
    if backend == "auto":
        backend = "threads" if spec.native or spec.releases_gil or waits == "threads" else "workers"
    kind = "a native environment" if spec.native else "a Python environment"
    if spec.releases_gil:
        kind = "an environment whose steps release Python's lock"
    why = {
        "no": kind,
        "threads": f"{kind} that waits in its step, in which other threads run (env.step_waits)",
        "workers": f"{kind} that waits in its step, in which other processes run (env.step_waits)",
    }[waits]
    few, usual = min(cores, num_envs), f"{cores} cores allowed, {num_envs} envs"
    if backend == "threads":
        many, most = waits == "threads", MOST_THREADS
    else:
        many, most = waits != "no", WORKERS_PER_CORE * cores
    count = min(num_envs, most) if many else few
    so_many = f"env.step_waits={waits}: at most {most}, {num_envs} envs" if many else usual
    workers, threads = (count, 1) if backend == "workers" else (1, count)
    return Choice(backend, workers, threads, why, so_many)
