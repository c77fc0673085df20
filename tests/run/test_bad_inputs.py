"""Tests a sample of the mistakes of tests/run/bad_inputs.py: one message that names the value, exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.bad.case import Answer, Case, judge
from tests.run.bad_inputs import TABLES, all_cases

ROOT = Path(__file__).resolve().parents[2]


def test_a_sample_of_mistakes_is_told_in_one_message():
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.bad_inputs", "--sample", "40"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_tables_are_large_and_cover_every_command():
    found = all_cases()
    assert len(found) >= 600
    words = {case.words[0] for _, case in found}
    assert words >= {"train", "eval", "replay", "export", "monitor", "new-robot", "doctor", "bench"}
    assert words >= {"run_optimized.py", "benchmark_performance.py"}
    assert {name for name, _ in found} == set(TABLES)


CASE = Case(("train", "seed=x"), ("seed", "x"))


@pytest.mark.parametrize(
    ("code", "err", "verdict"),
    [
        (2, "error: seed=x: expected a whole number\n", None),
        (0, "", "silent: exit code 0"),
        (2, "", "silent"),
        (1, "error: seed=x\n", "exit code 1"),
        (2, "error: no\n", "does not name 'seed'"),
        (-11, "", "crash: signal 11"),
        (1, "Traceback (most recent call last):\n", "traceback"),
        (2, "error: seed=x\n" + "more\n" * 9, "10 lines"),
    ],
)
def test_answers_are_judged(code, err, verdict):
    assert judge(CASE, Answer(code, "", err, 0.1)) == verdict
