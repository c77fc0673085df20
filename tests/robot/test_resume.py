"""An Ant run that was stopped and killed at random moments equals the run that nothing stopped: every weight, every
number of the physics, every row of metrics.

    METTA_FAST_MOMENTS=40 pytest tests/robot/test_resume.py -m slow --timeout 3000
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

from metta_fast.cli import main
from tests.run.same import numbers, same
from tests.run.test_end_to_end import check_rows, newest, rows, signal_after
from tests.tiny import QUIET, named

EPOCH = 256
"""Rows of one."""
EPOCHS = 40
"""More than a quick machine does before it is killed."""
SIZES = [
    *QUIET,
    "env=ant",
    "env.num_envs=8",
    "env.max_steps=60",
    f"trainer.batch_size={EPOCH}",
    "trainer.minibatch_size=64",
    "trainer.update_epochs=2",
    "vector.backend=threads",
    "vector.num_threads=2",
    "run.min_interval_s=0",
    "run.checkpoint_interval=3",
]


RANDOMIZED = [
    f"env.params.randomize.{text}"
    for text in ("mass=[0.7,1.4]", "friction=[0.5,1.5]", "latency=[0,2]", "noise=0.01", "push=0.5")
]


def words(folder: Path, epochs: int, *more: str) -> list[str]:
    total = f"trainer.total_timesteps={epochs * EPOCH}"
    return ["train", *SIZES, total, *named(folder), *more]


def session(folder: Path, epochs: int, after: int, signum: signal.Signals, *more: str) -> int:
    """A process of its own gets the signal at a random moment soon after `after` rows; its exit code."""
    command = [sys.executable, "-m", "metta_fast", *words(folder, epochs, *more)]
    log = folder / "out.txt"
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    deadline = time.monotonic() + 60
    while process.poll() is None and len(rows(folder)) < after:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
    time.sleep(random.uniform(0, 0.3))
    process.send_signal(signum)
    return process.wait(30)


def check_equal(whole: Path, broken: Path) -> None:
    a, b = newest(whole), newest(broken)
    assert a.step == b.step
    same(a.load("algorithm"), b.load("algorithm"))
    same(a.load("env"), b.load("env"))
    curves = [[numbers(row) for row in check_rows(folder)] for folder in (whole, broken)]
    assert curves[0] == curves[1]
    assert sum("env/return" in row for row in curves[0]) > len(curves[0]) // 3


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_run_that_was_stopped_and_killed_equals_an_unbroken_one(
    tmp_path: Path, deterministic: bool
) -> None:
    more = [f"trainer.deterministic={str(deterministic).lower()}", *([] if deterministic else RANDOMIZED)]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    broken.mkdir()
    assert main(words(whole, EPOCHS, *more)) == 0
    assert session(broken, EPOCHS, 5, signal.SIGKILL, *more) == -signal.SIGKILL
    new = len(rows(broken)) + 1  # rows of the killed run are there before this one can take a signal
    watcher = signal_after(broken, max(10, new), signal.SIGTERM)
    assert main(words(broken, EPOCHS, *more, "resume=auto")) == 143
    watcher.join()
    assert main(words(broken, EPOCHS, *more, "resume=auto")) == 0
    check_equal(whole, broken)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_many_random_moments(tmp_path: Path, capsys: Any) -> None:
    moments = int(os.environ.get("METTA_FAST_MOMENTS", 30))
    epochs = 4 * moments
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    broken.mkdir()
    more = ["trainer.deterministic=true"]
    assert main(words(whole, epochs, *more)) == 0
    ended: dict[int, int] = {}
    while (count := sum(ended.values())) < moments:
        signum = random.choice((signal.SIGTERM, signal.SIGKILL))
        after = min(random.randint(0, 4) + len(rows(broken)), epochs - 2)
        code = session(broken, epochs, after, signum, *more, "resume=auto")
        ended[code] = ended.get(code, 0) + 1
        with capsys.disabled():
            print(f"{count + 1}: {signum.name} after {after} rows, exit code {code}", flush=True)
    assert main(words(broken, epochs, *more, "resume=auto")) == 0
    check_equal(whole, broken)
    assert ended.keys() <= {0, 143, -signal.SIGTERM, -signal.SIGKILL}, ended
