"""Tests the long trials kills.py and memory.py with short runs: they run, and they detect failures."""

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.envs.counter import CounterBatch, CounterFactory
from tests.run.memory import BACKENDS, LIMIT, MIB, growth, step_episodes
from tests.run.memory import main as memory_of_a_run

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks with torch loaded")
@pytest.mark.timeout(300)
def test_a_run_that_is_killed_three_times():
    command = [sys.executable, "-m", "tests.run.kills", "--kills", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bit for bit as in the unbroken run" in done.stdout


class LeakyBatch(CounterBatch):
    kept: list = []  # noqa: RUF012 - what leaks

    def step(self):
        super().step()
        pages = mmap.mmap(-1, MIB // 8)  # of its own: the allocator would take what earlier tests have freed
        pages.write(bytes(len(pages)))
        self.kept.append(pages)


class LeakyFactory(CounterFactory):
    def make_batch(self, first_env, num_envs, total_envs):
        return LeakyBatch(self, first_env, num_envs, total_envs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("leaks", [False, True])
def test_memory_over_episodes(backend, leaks):
    factory = (LeakyFactory if leaks else CounterFactory)(max_steps=10)
    grown = growth(step_episodes(factory, 32, BACKENDS[backend], 320))
    LeakyBatch.kept.clear()
    assert (grown > LIMIT) == leaks


def test_a_short_time_of_training_is_shown_and_not_judged(capsys):
    assert memory_of_a_run(["--minutes", "0.01"]) == 0
    told = capsys.readouterr().out
    assert "0.01 minutes of training (" in told
    assert "readings are too few to judge: 40 or more)" in told
    with pytest.raises(SystemExit, match="unknown env 'nowhere'"):
        memory_of_a_run(["--minutes", "0.01", "env=nowhere"])
