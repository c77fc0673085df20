"""Runs one side of a comparison in a process of its own, which stays alive and pauses between its rounds.

    parent                                   child: python -m metta_fast.bench.training.side
    {"overrides": […], …}           ──►      compose, resolve, build
                                    ◄──      {"ready": …}
    {"do": "burn_in" | "round" | "learn", …} ──►  epochs
                                    ◄──      {"steps_per_s": …, "phases": …}
    end of the pipe                 ──►      closes the environments, ends

Each side has its own process, because torch's threads, TF32, deterministic kernels, compiled code and memory pools
belong to the process, and one side's settings would affect the other. A paused side uses no core: it sleeps on its
pipe. At an epoch's end every block is held, so the threads and workers of its environments sleep as well.

A round is whole epochs, each with a run's work at its end (metrics, and the snapshot for a checkpoint). The GPU is
synchronised at the start and the end of a round. Messages are lines of JSON; output of the child goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from metta_fast.bench.training.ladder import mixed
from metta_fast.contracts.closing import Closing
from metta_fast.contracts.errors import UserError
from metta_fast.machine.idle_threads import let_idle_threads_sleep
from metta_fast.resolve.compose import Composed, compose

if TYPE_CHECKING:
    import torch

BURN_IN_EPOCHS = 3
"""Least epochs before the first round, for compiling, memory pools and the first resets."""
_NEVER = 10**15
"""Steps of the schedule: so many that a benchmark never reaches its end."""


def composed_side(overrides: Sequence[str]) -> Composed:
    """Composes the configuration of a side. Raises UserError: the overrides contain a mistake."""
    return compose([f"trainer.total_timesteps={_NEVER}", *overrides])


class SideError(RuntimeError):
    """A side's process failed; the message holds the end of its output."""


class Side(Closing):
    """Starts a side's process and talks to it; use it in a `with`."""

    def __init__(
        self,
        name: str,
        overrides: Sequence[str],
        *,
        toward: Sequence[str] = (),
        paths: Sequence[str] = (),
    ) -> None:
        """Starts the process and builds everything.

        Args:
            overrides: the side's configuration.
            toward: overrides of another configuration (ladder.py).
            paths: keys that take the values of `toward`.

        Raises:
            UserError: the overrides contain a mistake.
            SideError: the process failed for another reason.
        """
        self.name = name
        with contextlib.ExitStack() as unless_started:
            self._stderr = unless_started.enter_context(tempfile.TemporaryFile("w+"))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "metta_fast.bench.training.side"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                start_new_session=True,
            )
            unless_started.pop_all()  # close() closes it
        try:
            self.ready = self.ask(overrides=list(overrides), toward=list(toward), paths=list(paths))
        except BaseException:
            self.close()
            raise

    def ask(self, **message: Any) -> dict[str, Any]:
        """Sends a message and waits for its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(message) + "\n")
            stdin.flush()
        line = stdout.readline()
        if not line:
            code = self._process.wait()
            self._stderr.seek(0)
            tail = "\n".join(self._stderr.read().splitlines()[-25:])
            raise SideError(f"side {self.name} ended with exit code {code}:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise UserError(f"side {self.name}: {answer['error']}")
        return answer

    def burn_in(self, seconds: float) -> dict[str, Any]:
        """Trains without measuring, for at least BURN_IN_EPOCHS epochs and `seconds` seconds."""
        return self.ask(do="burn_in", seconds=seconds)

    def round(self, seconds: float) -> dict[str, Any]:
        """Trains whole epochs for at least `seconds` seconds: {"steps_per_s", "steps", "seconds", "phases", …}."""
        return self.ask(do="round", seconds=seconds)

    def learn(self, target: float, seconds: float) -> dict[str, Any]:
        """Trains until the mean return of an epoch reaches `target`, for at most `seconds` seconds.

        Returns:
            {"reached": bool, "seconds", "steps", "return"}.
        """
        return self.ask(do="learn", target=target, seconds=seconds)

    def interval_costs(self, names: Sequence[str]) -> dict[str, Any]:
        """Measures the seconds that one of each takes, for names of interval_cost.COUNTED: {name: seconds}."""
        return self.ask(do="interval_costs", names=list(names))

    def close(self) -> None:
        """Ends the process, which closes its environments."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        for patience, kill in ((5, self._interrupt), (30, self._process.kill)):
            try:
                self._process.wait(timeout=patience)
                break
            except subprocess.TimeoutExpired:
                kill()
        self._process.wait()
        self._stderr.close()

    def _interrupt(self) -> None:
        """Interrupts an epoch in progress; the child still closes its environments."""
        self._process.send_signal(signal.SIGINT)


class _GpuMeter:
    """Measures the mean GPU utilisation of a block of code that takes at least a second; None if unavailable."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.mean: float | None = None

    def __enter__(self) -> _GpuMeter:
        from metta_fast.machine.monitor import Monitor

        self._monitor = Monitor(self._device) if self._device.type == "cuda" else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._monitor is not None:
            self.mean = self._monitor.read().get("perf/gpu_utilization")
            self._monitor.close()


class _Runner:
    """Builds a run in the child and trains it epoch by epoch."""

    def __init__(self, overrides: list[str], toward: list[str], paths: list[str]) -> None:
        from metta_fast.resolve.resolve import resolve
        from metta_fast.run.build import build_parts

        composed = composed_side(overrides)
        resolved = resolve(mixed(composed, composed_side(toward), paths) if paths else composed)
        self.config, self.notes = resolved.config, resolved.notes
        self.parts = build_parts(self.config, resolved.factory)
        self.algorithm = self.parts.algorithm
        self._with_env = self.config.trainer.deterministic or self.parts.spec.cheap_state
        self.phases: dict[str, float] = {}

    def ready(self) -> dict[str, Any]:
        config = self.config
        return {
            "ready": True,
            "notes": self.notes,
            "settings": {
                "env": config.env.name,
                "num_envs": config.env.num_envs,
                "backend": config.vector.backend,
                "workers": config.vector.num_workers,
                "threads": config.vector.num_threads,
                "blocks": config.vector.async_factor,
                "batch_size": config.trainer.batch_size,
                "minibatch_size": config.trainer.minibatch_size,
                "device": config.trainer.device,
                "precision": config.trainer.precision,
                "compile": config.trainer.compile,
                "policy": config.policy.name,
                "core": config.policy.core,
            },
        }

    def interval_costs(self, names: list[str]) -> dict[str, Any]:
        from metta_fast.bench.sizing.interval_cost import measure

        return measure(self.config, self.parts, names)

    def epoch(self) -> dict[str, float]:
        """Trains one epoch, does a run's work between epochs, and returns the metrics."""
        self.algorithm.collect()
        self.algorithm.update()
        start = time.perf_counter()
        metrics = self.algorithm.metrics()
        self.algorithm.state_dict()
        if self._with_env:
            self.algorithm.env_state()
        for name, value in metrics.items():
            if name.startswith("perf/time/"):
                phase = name.removeprefix("perf/time/")
                self.phases[phase] = self.phases.get(phase, 0.0) + value
        self.phases["boundary"] = self.phases.get("boundary", 0.0) + time.perf_counter() - start
        return metrics

    def sync(self) -> float:
        """Waits for the device and returns the time."""
        if self.parts.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.parts.device)
        return time.perf_counter()

    def burn_in(self, seconds: float) -> dict[str, Any]:
        start, epochs = self.sync(), 0
        while epochs < BURN_IN_EPOCHS or self.sync() - start < seconds:
            self.epoch()
            epochs += 1
        return {"epochs": epochs, "seconds": self.sync() - start}

    def round(self, seconds: float) -> dict[str, Any]:
        self.phases, first, epochs = {}, self.algorithm.steps, 0
        with _GpuMeter(self.parts.device) as meter:
            start = self.sync()
            while epochs == 0 or time.perf_counter() - start < seconds:
                self.epoch()
                epochs += 1
            elapsed = self.sync() - start
        steps = self.algorithm.steps - first
        return {
            "steps_per_s": steps / elapsed,
            "steps": steps,
            "epochs": epochs,
            "seconds": elapsed,
            "phases": self.phases,
            "gpu_utilization": meter.mean,
        }

    def learn(self, target: float, seconds: float) -> dict[str, Any]:
        start, score = self.sync(), float("nan")
        while time.perf_counter() - start < seconds:
            score = self.epoch().get("env/return", score)  # absent if no episode ended
            if score >= target:
                break
        return {
            "reached": bool(score >= target),
            "seconds": self.sync() - start,
            "steps": self.algorithm.steps,
            "return": None if score != score else score,
        }


def _messages(stream: IO[str]) -> Iterator[dict[str, Any]]:
    for line in stream:
        yield json.loads(line)


def main() -> None:
    """Runs the child: answers messages until the pipe ends."""
    let_idle_threads_sleep()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with the answers

    def answer(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            answers.write(json.dumps(message) + "\n")

    messages = _messages(sys.stdin)
    runner: _Runner | None = None
    try:
        runner = _Runner(**next(messages))
        answer(runner.ready())
        for message in messages:
            act = getattr(runner, message.pop("do"))
            answer(act(**message))
    except UserError as error:
        answer({"error": str(error)})
    finally:
        if runner is not None:
            runner.parts.close()


if __name__ == "__main__":
    main()
