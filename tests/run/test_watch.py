"""Tests `metta-fast monitor`: what it finds, what it shows, how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.machine import nvml
from metta_fast.machine.process_clock import process_start
from metta_fast.metrics.run_panel import CURVE_POINTS
from metta_fast.storage.run_folder import RunDir
from metta_fast.watch import command as watch
from metta_fast.watch import metrics_tail, state
from metta_fast.watch import view as watch_view
from metta_fast.watch.metrics_tail import MetricsTail
from metta_fast.watch.state import Watch, Watched, find_run

SELF = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
"""Environment of a process in another folder that imports this checkout."""
CARD = {
    "perf/gpu_utilization": 97.0,
    "perf/gpu_memory_mib": 20480.0,
    "perf/gpu_memory_percent": 25.0,
    "perf/gpu_power_w": 450.0,
    "perf/gpu_power_limit_w": 700.0,
    "perf/gpu_clock_sm_mhz": 1980.0,
    "perf/gpu_clock_memory_mhz": 2619.0,
    "perf/gpu_temperature_c": 61.0,
}


class FakeCard:
    def __init__(self, name="NVIDIA Test Card", row=CARD):
        self.name, self.row = name, row

    def poll(self):
        return self.row


def row(step, **values):
    return (
        json.dumps(
            {
                "train/steps": step,
                "perf/steps_per_second": 123456.0,
                "perf/steps_per_second_mean": 1e5,
                "perf/time/env": 0.1,
                "perf/time/update": 0.3,
                "env/return": step / 1000,
                **values,
            }
        )
        + "\n"
    )


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The current folder, without runs/ yet; no card."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvml, "open_cards", lambda: ([], "no GPU: this machine has no NVIDIA driver"))
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: None)
    return tmp_path


def make_run(root, name="grid-1", rows=3, age=0.0) -> RunDir:
    folder = RunDir(root / "runs" / name)
    folder.checkpoints.mkdir(parents=True)
    folder.config.write_text("env:\n  name: grid\ntrainer:\n  total_timesteps: 100000\n  gamma: 0.99\n")
    folder.metrics.write_text("".join(row(1000 * i) for i in range(1, rows + 1)))
    written = time.time() - age
    for path in (folder.checkpoints, folder.config):
        os.utime(path, (written, written))
    return folder


def picture(watch, width=120, height=40) -> str:
    from rich.console import Console

    console = Console(width=width, height=height, record=True, file=io.StringIO())
    console.print(watch_view.screen(watch, width, height))
    return console.export_text()


# ── the metrics file ──


def test_rows_are_taken_as_they_are_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    tail.update()
    assert tail.seen == {}
    path.write_text(row(1000, **{"eval/return": 5.0}) + row(2000)[:30])
    tail.update()
    assert tail.seen["train/steps"] == 1000
    path.write_text(row(1000, **{"eval/return": 5.0}) + row(2000, **{"env/return": None}))
    tail.update()
    assert tail.seen["train/steps"] == 2000
    assert tail.seen["env/return"] == 1.0  # an epoch without an ended episode keeps the last
    assert tail.seen["eval/return"] == 5.0
    assert len(tail.curve._values) == 1


def test_a_file_cut_by_a_resume_is_read_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(row(1000) + row(2000) + row(3000))
    tail = MetricsTail(path)
    tail.update()
    path.write_text(row(1000) + row(1500))
    tail.update()
    assert tail.seen["train/steps"] == 1500
    assert tail.curve._values == [1.0, 1.5]
    path.unlink()
    tail.update()
    assert tail.seen == {}


def test_a_damaged_line_is_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(row(1000) + '{"train/st\n' + "3\n" + row(2000))
    tail = MetricsTail(path)
    tail.update()
    assert tail.seen["train/steps"] == 2000


def test_a_long_file_is_read_in_part_with_its_whole_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_tail, "TAIL", 1 << 16)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(row(step) for step in range(1000, 21_001)))
    taken = []
    take = MetricsTail._take
    monkeypatch.setattr(MetricsTail, "_take", lambda self, *words: (taken.append(1), take(self, *words)))
    tail = MetricsTail(path)
    tail.update()
    assert len(taken) < 2000
    assert tail.seen["train/steps"] == 21_000
    values = tail.curve._values
    assert CURVE_POINTS // 4 <= len(values) <= CURVE_POINTS
    steps = [b - a for a, b in pairwise(values)]
    assert values == sorted(values)
    assert max(steps) < 3 * sum(steps) / len(steps)  # evenly spaced, the end too


# ── which run ──


def test_the_run_is_found_by_folder_by_name_and_as_the_newest(root):
    old, new = make_run(root, "old", age=100), make_run(root, "new")
    assert find_run("old").path.resolve() == old.path
    assert find_run(str(old.path)).path == old.path
    assert find_run(str(root / "runs")).path == new.path
    assert find_run(None).path.resolve() == new.path


def test_an_unknown_run_is_named_with_the_ones_there_are(root):
    make_run(root, "other")
    (root / "empty").mkdir()
    for name in ("nothing", "empty"):
        with pytest.raises(UserError, match=rf"no run {name}; .*other"):
            find_run(name)


def test_a_newer_run_is_followed_where_none_was_named(root, monkeypatch):
    monkeypatch.setattr(state, "LOOK_S", 0.0)
    seen = Watch(None)
    seen.poll()
    assert "none in runs/ yet" in watch_view.plain(seen)
    assert "none in runs/ yet" in picture(seen)
    make_run(root, "first", age=100)
    seen.poll()
    assert seen.run.folder.name == "first"
    make_run(root, "second")
    seen.poll()
    assert seen.run.folder.name == "second"
    named = Watch("first")
    named.poll()
    assert named.run.folder.name == "first"


# ── whether it trains ──


def test_the_process_that_trains_is_known_by_the_lock(root):
    folder = make_run(root)
    run = Watched(folder)
    run.poll()
    assert run.state.startswith("not training, last metrics")
    folder.lock()
    run.poll()
    assert run.state.startswith(f"training, process {os.getpid()}, last metrics")
    assert run.readings["perf/memory_gb"] > 0
    folder.unlock()
    run.poll()
    assert run.state.startswith("not training,")
    assert run.readings == {}


def test_a_killed_process_another_host_and_a_number_used_again(root):
    folder = make_run(root)
    run, lock = Watched(folder), folder.path / "lock"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lock.write_text(f"process {child.pid} on {socket.gethostname()}\nstarted {process_start(child.pid)}\n")
    run.poll()
    assert f"training, process {child.pid}" in run.state
    child.communicate(b"\n")
    for _ in range(2):
        run.poll()
        assert f"not training, process {child.pid} is gone" in run.state
    lock.write_text("process 1 on elsewhere\nstarted 1.0\n")
    run.poll()
    assert run.state.startswith("training on elsewhere")
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}\nstarted 1.0\n")
    run.poll()
    assert f"process {os.getpid()} is gone" in run.state


def test_a_file_that_cannot_be_read_is_told(root):
    folder = make_run(root)
    folder.metrics.unlink()
    folder.metrics.mkdir()
    with pytest.raises(UserError, match=r"cannot read .*metrics\.jsonl"):
        Watched(folder).poll()


# ── what is shown ──


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50)])
def test_the_screen_shows_cards_and_run(root, monkeypatch, width, height):
    monkeypatch.setattr(nvml, "open_cards", lambda: ([FakeCard(), FakeCard()], ""))
    make_run(root, "grid[1]")
    seen = Watch(None)
    seen.poll()
    text = picture(seen, width, height)
    for part in (
        "2 × NVIDIA Test Card",
        "97 %",
        "20480 MiB  25 %",
        "450 / 700 W",
        "1980 / 2619 MHz",
        "61 °C",
        "grid[1]",
        "3000 / 100K",
        "update",
        "75 %",
        "123K steps/s",
        "not training",
    ):
        assert part in text
    assert len(text.splitlines()) <= height
    assert max(map(len, text.splitlines())) <= width


def test_a_card_that_tells_little(root, monkeypatch):
    monkeypatch.setattr(nvml, "open_cards", lambda: ([FakeCard("MIG", {})], ""))
    seen = Watch(None)
    seen.poll()
    assert "GPU 0" in picture(seen)


def test_a_run_without_metrics_yet(root):
    make_run(root, rows=0)
    seen = Watch(None)
    seen.poll()
    assert "no metrics yet" in picture(seen)
    assert "no metrics yet" in watch_view.plain(seen)


def test_once_prints_plain_lines(root, capsys):
    folder = make_run(root)
    folder.lock()
    assert main(["monitor", "--once"]) == 0
    out = capsys.readouterr().out
    for part in (
        "no NVIDIA driver",
        "machine  CPU busy",
        "grid-1: training, process",
        "3000/100K steps  3 %",
    ):
        assert part in out
    assert "\x1b" not in out
    folder.unlock()
    assert main(["monitor", "grid-1"]) == 0  # no terminal: the same
    assert "grid-1: not training" in capsys.readouterr().out


def test_it_does_not_load_torch(root):
    code = "import sys; from metta_fast.cli import main; main(['monitor', '--once']); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=root, env=SELF, timeout=60).returncode == 0


def test_live_on_a_terminal_until_ctrl_c(root):
    make_run(root)
    here, there = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "metta_fast", "monitor", "--interval", "0.1"],
        cwd=root,
        env={**SELF, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        stdin=there,
        stdout=there,
        stderr=there,
    )
    os.close(there)
    text = b""
    while b"grid-1" not in text:
        text += os.read(here, 1 << 16)
    process.send_signal(signal.SIGINT)
    end = b""
    while True:
        try:
            chunk = os.read(here, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        end += chunk
    assert process.wait(timeout=20) == 0
    os.close(here)
    assert b"\x1b[?1049h" in text  # the terminal's other screen, and back
    assert b"\x1b[?1049l" in end
    assert b"Traceback" not in text + end
