"""Tests the contents of the dashboards."""

import io
import time

import pytest

from metta_fast.metrics import dashboard as board
from metta_fast.metrics import run_panel as panel
from metta_fast.metrics.dashboard import make_dashboard
from metta_fast.metrics.progress_text import line, readings, short, time_left
from metta_fast.metrics.run_panel import Curve, run_panel

ROW = {
    "train/steps": 250_000.0,
    "train/epoch": 5,
    "perf/steps_per_second": 123_456.0,
    "perf/steps_per_second_mean": 100_000.0,
    "perf/time/env": 0.1,
    "perf/time/update": 0.3,
    "env/return": 1.5,
    "env/length": 200.0,
    "loss/policy": -0.0123,
    "perf/gpu_utilization": 87.0,
    "perf/gpu_memory_mib": 20480.0,
    "perf/gpu_memory_percent": 25.0,
    "perf/gpu_power_w": 450.4,
    "perf/gpu_power_limit_w": 700.0,
    "perf/cpu_utilization": 12.0,
    "perf/pace": 7.0,
}
LONG = ROW | {f"env/stat_{k}": 1000.0 * k for k in range(20)} | {f"loss/loss_{k}": k / 7 for k in range(9)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (9999, "9999"),
        (12345, "12.3K"),
        (1.5e6, "1.5M"),
        (-2e9, "-2G"),
        (0.031249, "0.03125"),
        (1e-5, "1e-05"),
    ],
)
def test_short_numbers(value, text):
    assert short(value) == text


def test_time_left():
    assert time_left(ROW, 1_250_000) == "10s"
    assert time_left(ROW, 250_000 + 100_000 * 3700) == "1h01m"
    assert time_left({}, 10) == "?"


def test_the_plain_line():
    text = line(ROW, 1_000_000)
    for part in ("250K/1M steps", "25 %", "123K/s", "return 1.5", "[update 75% env 25%]", "left 7s"):
        assert part in text


def test_readings_in_words_leave_out_what_is_not_told():
    words = dict(readings(ROW))
    assert words == {
        "GPU busy": "87 %",
        "GPU memory": "20480 MiB  25 %",
        "GPU power": "450 / 700 W",
        "CPU busy": "12 %",
    }
    assert dict(readings({"perf/gpu_power_w": 70.0})) == {"GPU power": "70 W"}
    assert readings({}) == []


def test_the_curve_keeps_its_whole_length_in_few_points():
    curve = Curve(range(100_000))
    assert len(curve._values) < panel.CURVE_POINTS
    assert curve.bars(8) == "▁▂▃▄▅▆▇█"
    assert Curve().bars(8) == ""
    assert Curve([2.0, 2.0]).bars(8) == "▁▁"


def test_a_return_stays_when_an_epoch_has_none(capsys):
    plain = make_dashboard("plain", title="x", total_steps=1000)
    plain.update({"env/return": 3.25})
    plain.update({"env/return": float("nan")})
    plain.close()
    assert capsys.readouterr().err.count("return 3.25") == 2


def test_plain_lines_are_seconds_apart(capsys):
    plain = make_dashboard("auto", title="x", total_steps=1000)
    for _ in range(100):
        plain.update(ROW)
    assert len(capsys.readouterr().err.splitlines()) == 1
    plain.close()
    plain.close()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_none_shows_messages_only(capsys):
    quiet = make_dashboard("none", title="x", total_steps=1)
    quiet.update(ROW)
    quiet.message("stopped")
    quiet.close()
    assert capsys.readouterr().err == "stopped\n"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_rich_shows_everything_and_is_cheap(monkeypatch, width):
    from rich.console import Console

    screen = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda **kw: Console(file=screen, force_terminal=True, width=width)
    )
    rich = make_dashboard("rich", title="grid-1", total_steps=1_000_000, curve=[0.0, 0.5, 1.0])
    rich.update(ROW)
    begun = time.perf_counter()
    for _ in range(1000):
        rich.update(ROW)
    each = (time.perf_counter() - begun) / 1000
    rich.message("[not markup]")
    rich.close()
    text = screen.getvalue()
    for part in ("grid-1", "250K / 1M", "GPU busy", "450 / 700 W", "pace", "policy", "75 %", "[not markup]"):
        assert part in text
    assert each < 1e-3


def test_the_mean_of_the_last_episodes_is_beside_the_epochs_return(capsys):
    plain = make_dashboard("plain", title="x", total_steps=1000)
    plain.update({"env/return": 3.25, "env/return_100": 2.5})
    assert "return 3.25 (last 100 episodes 2.5)" in capsys.readouterr().err


def drawn(width, height, **given):
    from rich.console import Console

    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(run_panel(LONG, 10**6, Curve(range(90)), title="a[1]", width=width, height=height, **given))
    return console.export_text().splitlines()


@pytest.mark.parametrize(
    ("width", "height"), [(80, 23), (60, 19), (200, 49), (80, 14), (40, 23), (30, 8), (12, 4)]
)
def test_the_panel_fits_whatever_the_size(width, height):
    lines = drawn(width, height, slower=["update in C: " + "why " * 40] * 3, advice="raise it " * 30)
    assert len(lines) <= height
    assert {len(line) for line in lines} == {width}
    assert (lines[0][0], lines[0][-1], lines[-1][0], lines[-1][-1]) == ("╭", "╮", "╰", "╯")
    assert all(line[0] == line[-1] == "│" for line in lines[1:-1])


def test_at_80_by_24_every_group_is_there():
    text = "\n".join(drawn(80, 23, advice="raise env.num_envs"))
    for part in (
        "time",
        "loss",
        "env",
        "run",
        "machine",
        "GPU busy",
        "87 %",
        "update",
        "advice: raise env.num_envs",
    ):
        assert part in text


def test_a_statistic_whose_name_begins_like_the_return_is_shown():
    from rich.console import Console

    console = Console(width=80, file=io.StringIO(), record=True)
    seen = {"env/return": 1.0, "env/return_100": 2.0, "env/return_of_team": 7.5}
    console.print(run_panel(seen, 10, Curve(), title="x", width=80))
    text = console.export_text()
    assert "return of team  7.5" in text
    assert "return 1   last 100 episodes 2" in text


def test_a_drawing_never_scrolls_what_it_draws_over(monkeypatch):
    """The cursor stands on a line of its own below, so that ^C does not push the panel down."""
    from rich.console import Console

    screen = io.StringIO()
    size = {"width": 60, "height": 20}
    consoles = []

    def console(**given):
        consoles.append(Console(file=screen, force_terminal=True, **size))
        return consoles[-1]

    monkeypatch.setattr("rich.console.Console", console)
    monkeypatch.setattr(board, "REFRESH_S", 0.0)
    rich = make_dashboard("rich", title="grid-1", total_steps=1_000_000)
    rich.message("a note")
    rich.update(LONG)
    screen.truncate(0)
    rich.update(LONG)
    text = screen.getvalue()
    assert 10 < text.count("\x1b[1A") <= 19
    assert text.endswith("╯\n")
    screen.truncate(0)
    consoles[0]._width, consoles[0]._height = 50, 12  # the terminal becomes smaller
    rich.update(LONG)
    text = screen.getvalue().rpartition("\x1b[H")[2]  # after the screen was cleared
    assert "a note" in text
    assert text.count("│") == 2 * (11 - 2)
    rich.close()
    assert screen.getvalue().rstrip("\n\x1b[?25h").endswith("╯")


def test_steps_move_within_an_epoch(monkeypatch, capsys):
    """The plain lines come as often as before, also while an epoch lasts; a later row goes on from there."""
    now = 100.0
    monkeypatch.setattr(board.time, "monotonic", lambda: now)
    shown = make_dashboard("plain", title="t", total_steps=1000)
    for steps in range(0, 40, 4):
        shown.moved(steps)
        now += 1.0
    shown.update({"train/steps": 40.0})
    shown.close()
    lines = [text.split()[0] for text in capsys.readouterr().err.splitlines()]
    assert lines == ["20/1000", "40/1000"]


def test_the_bar_is_redrawn_within_an_epoch(monkeypatch):
    now = 100.0
    monkeypatch.setattr(board.time, "monotonic", lambda: now)
    shown = make_dashboard("rich", title="t", total_steps=1000)
    drawn = []
    monkeypatch.setattr(shown, "_draw", lambda: drawn.append(shown._seen["train/steps"]))
    for steps in range(0, 100, 10):
        shown.moved(steps)
        now += 0.2
    shown._live.stop()
    assert drawn == [0, 30, 60, 90]
