"""Tests the soak: a short one passes, and what it looks for is found."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.vector.soak.__main__ import left
from tests.vector.soak.judge import ALLOWED, MARK, Sample, drift

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
FLAT = Sample(rss_mib=100.0, threads=3, descriptors=9, children=0, shared_files=0)


@pytest.mark.timeout(400)
def test_twenty_seconds_of_kills_and_stops_leave_everything_flat():
    command = [sys.executable, "-m", "tests.vector.soak", "--minutes", "0.33", "--every", "4"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "| minute | rounds |" in done.stdout
    assert done.stdout.endswith("nothing hung, grew or was left\n")


@pytest.mark.parametrize("what", ALLOWED)
def test_growth_is_found(what):
    assert drift("it", [FLAT] * 6) == []
    step = ALLOWED[what] / 2 + 1
    growing = [replace(FLAT, **{what: getattr(FLAT, what) + step * i}) for i in range(6)]
    assert [what in sentence for sentence in drift("it", growing)] == [True]


def test_what_fills_at_the_beginning_is_not_growth():
    assert drift("it", [replace(FLAT, rss_mib=10.0), *[FLAT] * 5]) == []
    assert "too few samples" in drift("it", [FLAT])[0]


def test_samples_during_a_restart_do_not_count():
    whole, restart = replace(FLAT, children=3, descriptors=11), replace(FLAT, children=0, descriptors=6)
    assert Sample.least([restart, whole, replace(whole, descriptors=12), restart], 3) == whole
    assert Sample.least([restart], 3) == restart


def test_a_process_left_behind_is_found():
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: "test_soak"})
    try:
        assert left("test_soak", 0.1) == [f"left behind: process {child.pid} sleep"]
    finally:
        child.kill()
        child.wait()
    assert left("test_soak", 0.1) == []
