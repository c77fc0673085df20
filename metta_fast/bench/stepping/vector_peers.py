"""Compares vector backends on a Python environment, Gymnasium's CartPole-v1: ours and others', each in a process.

measure(report, seconds, repeats, say)        # the second part of benchmark_performance.py --vector

ours        serial, threads, workers in two blocks
gymnasium   SyncVectorEnv; AsyncVectorEnv, one process per environment
pufferlib   Serial; Multiprocessing with one process per core and with half as many (its caller also spins on a core),
            in two batches if their number is even
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from metta_fast.bench.harness.child_handle import BUILD_LIMIT_S, Child, Failed
from metta_fast.bench.harness.child_loop import serve
from metta_fast.bench.harness.libraries import GYMNASIUM, PUFFERLIB, Library
from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.bench.stepping.cpu_simulator import TAPE
from metta_fast.bench.stepping.steppers import GymnasiumVector, Ours, Stepper
from metta_fast.contracts.env import Array
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.machine import hardware

TASK = "CartPole-v1"
ENVS = 64
WORKER = (sys.executable, "-m", "metta_fast.bench.stepping.vector_peers")
HALF = ", half the cores"
PEERS: tuple[tuple[str, str, Library | None], ...] = (
    ("ours", "serial", None),
    ("ours", "threads", None),
    ("ours", "workers", None),
    ("gymnasium", "SyncVectorEnv", GYMNASIUM),
    ("gymnasium", "AsyncVectorEnv", GYMNASIUM),
    ("pufferlib", "Serial", PUFFERLIB),
    ("pufferlib", "Multiprocessing", PUFFERLIB),
    ("pufferlib", f"Multiprocessing{HALF}", PUFFERLIB),
)
"""(kind, backend, library that must be installed)."""


def cart_pole(index: int = 0) -> Any:
    """Makes the environment, the same for all."""
    import gymnasium

    return gymnasium.make(TASK)


def _tape(num_envs: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 2, num_envs) for _ in range(TAPE)]


class PufferLib(Stepper):
    """Steps PufferLib, which resets in the step after an end; with two batches, they alternate."""

    def __init__(self, backend: str, num_envs: int, cores: int) -> None:
        import pufferlib.emulation
        import pufferlib.vector

        self.task, self._tape = TASK, _tape(num_envs)
        self._ended = np.zeros(num_envs, np.bool_)
        self._count = 0
        more: dict[str, Any] = {}
        if backend != "Serial":
            workers = max(cores // 2, 1) if backend.endswith(HALF) else cores
            while num_envs % workers:
                workers -= 1
            batches = 1 if workers % 2 else 2
            more = {"num_workers": workers, "batch_size": num_envs // batches, "overwork": True}
        self._env = pufferlib.vector.make(
            pufferlib.emulation.GymnasiumPufferEnv,
            env_kwargs={"env_creator": cart_pole},
            backend=getattr(pufferlib.vector, backend.removesuffix(HALF)),
            num_envs=num_envs,
            **more,
        )
        self._env.async_reset(0)

    def step(self) -> int:
        _, _, terminated, truncated, _, _, ids, _ = self._env.recv()
        acting = len(ids) - int(np.count_nonzero(self._ended[ids]))
        self._ended[ids] = terminated | truncated
        self._env.send(self._tape[self._count % TAPE][: len(ids)])
        self._count += 1
        return acting

    def close(self) -> None:
        self._env.close()


def measure(report: Report, seconds: float, repeats: int, say: Callable[[str], None]) -> None:
    """Adds a row for each backend, ours and others', and the ratios of our fastest to the others."""
    cores, found = hardware.allowed_cores(), []
    with ExitStack() as stack:
        for kind, backend, library in PEERS:
            name = backend if library is None else f"{library.name} {backend}"
            if library is not None and not library.version():
                note = library.absent()
                report.notes += [note] if note not in report.notes else []
                continue
            child = stack.enter_context(Child(name, command=WORKER))
            try:
                child.ask(BUILD_LIMIT_S, do="build", kind=kind, backend=backend, num_envs=ENVS, cores=cores)
                burnt = child.alone(do="round", seconds=seconds)
            except Failed as failed:
                report.notes.append(f"absent: {name}: {failed.why}")
                say(f"{name} failed: {failed.why}\n{failed.printed}")
                continue
            say(f"{TASK}, {name}: {burnt['steps_per_s']:,.0f} steps/s in the burn-in")
            found.append((name, library, child))
        results, notes = in_turns(
            [partial(child.alone, do="round", seconds=seconds) for _, _, child in found],
            repeats,
            headed(say, TASK),
        )
    report.notes += [f"{TASK}: {note}" for note in notes]
    rows = [[one["steps_per_s"] for one in rounds] for rounds in results]
    for (name, _, _), speeds in zip(found, rows, strict=True):
        report.add_row(f"{TASK}, {ENVS} envs, {name}", speeds, peer=name)
    ours = [speeds for (_, library, _), speeds in zip(found, rows, strict=True) if library is None]
    best = max(ours, key=sum)
    for (name, library, _), speeds in zip(found, rows, strict=True):
        if library is not None:
            report.add_ratio(f"{TASK}: our fastest / {name}", best, speeds)


def make(kind: str, backend: str, num_envs: int, cores: int) -> Ours | Stepper:
    """Makes the stepper of one of PEERS."""
    if kind == "ours":
        return Ours(PythonEnvFactory(cart_pole, name=TASK), num_envs, backend, cores)
    if kind == "gymnasium":
        import gymnasium

        vector = getattr(gymnasium.vector, backend)([cart_pole] * num_envs)
        return GymnasiumVector(TASK, vector, _tape(num_envs))
    if kind == "pufferlib":
        return PufferLib(backend, num_envs, cores)
    raise ValueError(f"kind {kind!r}: expected ours, gymnasium or pufferlib")


if __name__ == "__main__":
    serve(make)
