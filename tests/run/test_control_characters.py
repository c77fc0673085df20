"""Tests that names from a stranger's run reach the terminal and pages as text only."""

from __future__ import annotations

import io
import json
import re
import shutil

import pytest
from rich.console import Console

from metta_fast.cli import main
from metta_fast.contracts.printable import one_line, printable
from metta_fast.metrics.dashboard import PlainDashboard
from metta_fast.metrics.run_panel import Curve, run_panel
from metta_fast.metrics.text_log import RunLog
from tests.run.test_stranger import rewrite
from tests.tiny import COUNTER, QUIET, trained

EVIL = "\x1b]0;owned\x07\x1b[2J\r\u202eevil\x9b[bold]"
"""Sets the title, clears the screen, overwrites its line, turns the direction of writing."""
BAD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("whole"), *COUNTER, "trainer.total_timesteps=256")


def test_printable():
    assert printable("a\x1b[2J\r\n\tb\x85\u202e ü→") == "a\\x1b[2J\\x0d\n\tb\\x85\\u202e ü→"
    assert one_line("a\nb\t") == "a\\nb\\t"


def test_commands_print_no_control_character(whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / f"r{EVIL.replace('/', '')}")
    rewrite(run, lambda meta: meta["config"]["env"].update(name=EVIL))
    row = {"train/steps": 300, "env/return": 1.0, f"env/{EVIL}": 2.0, f"perf/time/{EVIL}": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (run / "lock").write_text(f"process 1 on {EVIL}\nstarted 1\n")
    safe = shutil.copytree(run, tmp_path / "safe")
    for code, words in (
        (0, ["eval", str(run), "--episodes", "2"]),
        (0, ["replay", str(run), "--html", str(tmp_path / "page.html")]),
        (0, ["replay", str(run), "--terminal", "--step", "1"]),
        (0, ["export", str(run), "--out", str(tmp_path / f"p{EVIL}.pt")]),
        (0, ["monitor", str(run), "--once"]),
        (2, ["eval", f"nothing {EVIL}"]),
        (2, ["train", f"env.name={EVIL}", "nothing"]),
        (0, ["train", *QUIET, f"resume={safe}", "trainer.total_timesteps=512"]),
    ):
        assert main(words) == code, words
        out, err = capsys.readouterr()
        assert not BAD.search(out + err), (words[0], BAD.search(out + err))
    assert not BAD.search((safe / "train.log").read_text())


def test_dashboards_and_logs_print_no_control_character(tmp_path, capsys):
    seen = {"train/steps": 1.0, f"env/{EVIL}": 1.0, f"loss/{EVIL}": 1.0, f"perf/time/{EVIL}": 1.0}
    screen = io.StringIO()
    panel = run_panel(seen, 10, Curve(), title=EVIL, width=100)
    Console(file=screen, width=100, color_system=None).print(panel)
    assert not BAD.search(screen.getvalue())
    assert "[bold]" in screen.getvalue()
    shown = PlainDashboard(10)
    shown.update(seen)
    shown.close()
    log = RunLog(tmp_path / "train.log", print)
    log.warn(f"no {EVIL}")
    log.close()
    assert not BAD.search(capsys.readouterr().out)
    assert not BAD.search((tmp_path / "train.log").read_text())


@pytest.mark.parametrize(
    "name", ["{{SCRIPT}}", "{{DATA}}{{STYLE}}{{TITLE}}", "</script><script>alert(1)</script><!--"]
)
def test_a_page_of_any_name(name, whole, tmp_path):
    """Placeholders are filled in one pass, and no name ends a script."""
    run = shutil.copytree(whole, tmp_path / "run")
    rewrite(run, lambda meta: meta["config"]["env"].update(name=name))
    page = tmp_path / "page.html"
    assert main(["replay", str(run), "--html", str(page)]) == 0
    text = page.read_text()
    data = re.search(r'<script type="application/json" id="recording">(.*?)</script>', text, re.S)
    assert json.loads(data[1])["about"]["env"] == name
    assert text.count("<script") == 2
    assert text.count('"use strict"') == 1
    words = [*COUNTER, f"env.name='{name}'", "trainer.total_timesteps=256", "run.replay_interval=1"]
    assert main(["train", *words, f"run.dir={tmp_path}", "run.name=mine"]) == 0
    assert list((tmp_path / "mine" / "replays").glob("*.html"))
