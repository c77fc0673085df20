"""Tests `metta-fast replay` as typed by a user: files, the terminal, mistakes."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from metta_fast.cli import main
from metta_fast.contracts.recording import Recording
from metta_fast.episodes.terminal import Screen
from tests.episodes.worlds import busy_recording
from tests.tiny import trained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of the grid, with a checkpoint."""
    return trained(
        tmp_path_factory.mktemp("runs"), "env=grid", "env.num_envs=16", "env.max_steps=60",
        "policy.hidden_size=16", "trainer.batch_size=2048", "trainer.minibatch_size=512",
        "trainer.total_timesteps=4096",
    )  # fmt: skip


def typed(run, *words):
    return main(["replay", *(word.replace("RUN", str(run)) for word in words)])


def test_the_page_is_written_into_the_run(run, capsys):
    assert typed(run, "RUN") == 0
    told = capsys.readouterr().out
    path = run / "replays" / f"{next((run / 'checkpoints').iterdir()).name}-seed0-episode0.html"
    assert f"html: {path}" in told
    assert "60 steps, 4 agents; means per agent: return" in told
    data = re.search(r'id="recording">(.*?)</script>', path.read_text(), re.DOTALL)
    recording = Recording.from_json(json.loads(data[1]))
    assert recording.steps == 60
    assert recording.about["run"] == run.name
    assert recording.about["trained"] == int(recording.about["checkpoint"][5:]) > 0
    assert not list(path.parent.glob("*.tmp"))


def test_seed_and_episode_choose_the_map_and_the_mode_the_actions(run, tmp_path, capsys):
    def play(name, *words):
        assert typed(run, "RUN", "--json", str(tmp_path / name), *words) == 0
        return Recording.load(tmp_path / name)

    first = play("a")
    assert play("b").to_json() == first.to_json()
    likely, again = play("c", "--deterministic"), play("d", "--deterministic", "--seed", "0")
    assert likely.to_json() == again.to_json()
    assert likely.world.facts["walls"] == first.world.facts["walls"]
    assert (likely.action != first.action).any()
    others = [play("e", "--seed", "1"), play("f", "--episode", "1"), play("g", "--player", "scripted")]
    assert others[0].world.facts["walls"] != first.world.facts["walls"]
    assert others[1].world.facts["walls"] != first.world.facts["walls"]
    assert others[2].world.facts["walls"] == first.world.facts["walls"]
    assert others[2].stats["ore"].sum() > first.stats["ore"].sum()


def test_episodes_are_those_of_eval(run, tmp_path, capsys):
    """Episode i's world and its random player's stats are those of env i among many."""
    from metta_fast.contracts.env import EVAL_SEED_BIT
    from metta_fast.inference.evaluate import load_run
    from metta_fast.inference.players import play

    factory = load_run(str(run), best=False).factory
    episodes = play(factory, factory.scripted_player(), 3, seed=EVAL_SEED_BIT | 6)
    path = tmp_path / "r.json"
    typed(run, "RUN", "--json", str(path), "--player", "scripted", "--seed", "6", "--episode", "2")
    assert Recording.load(path).stats["moves"].tolist() == episodes.stats["moves"][8:].tolist()


def test_a_video_has_a_frame_of_each_step(run, tmp_path, capsys):
    from PIL import Image

    assert typed(run, "RUN", "--video", str(tmp_path / "a.gif"), "--fps", "20") == 0
    with Image.open(tmp_path / "a.gif") as video:
        assert video.n_frames == 61
        assert video.info["duration"] == 50
    assert not (run / "replays" / "a.html").exists()


def test_in_a_pipe_every_step_is_printed_in_ascii(run, capsys):
    assert typed(run, "RUN", "--terminal") == 0
    told = capsys.readouterr().out
    assert told.isascii()
    assert [int(n) for n in re.findall(r"^step (\d+) of 60", told, re.MULTILINE)] == list(range(61))
    assert typed(run, "RUN", "--terminal", "--step", "7") == 0
    told = capsys.readouterr().out
    assert re.findall(r"^step (\d+)", told, re.MULTILINE) == ["7"]
    assert told.count("#" * 36) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "no run or checkpoint nowhere"),
        ([], "the following arguments are required: RUN; see metta-fast replay --help"),
        (["RUN", "--fast"], "unrecognized arguments: --fast; see metta-fast replay --help"),
        (["RUN/checkpoints"], "no whole checkpoint"),
        (["RUN", "--seed", "-1"], "--seed -1: expected 0 …"),
        (["RUN", "--episode", "x"], "invalid int value"),
        (["RUN", "--fps", "0"], "--fps 0.0: expected 0.1 … 100"),
        (["RUN", "--fps", "nan"], "--fps nan: expected"),
        (["RUN", "--step", "3"], "add --terminal"),
        (["RUN", "--terminal", "--step", "61"], "--step 61: the episode has 60 steps"),
        (["RUN", "--terminal", "--agent", "4"], "--agent 4: agents are 0 … 3"),
        (["RUN", "--html", "RUN"], "is a folder"),
        (["RUN", "--json", "RUN/none/a.json"], "there is no folder"),
        (["RUN", "--html", "/proc/a.html"], "--html /proc/a.html cannot be written"),
        (["RUN", "--video", "a.avi"], "a video's name must end in .mp4 or .gif"),
        (["RUN", "--player", "me"], "invalid choice: 'me'"),
        (["RUN", "--deterministic", "--stochastic"], "not allowed with"),
    ],
)
def test_mistakes_are_told(run, capsys, words, message):
    assert typed(run, *words) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.startswith("error: ")


def screen(step=0):
    return Screen(busy_recording(max_steps=40)[1], step, 10.0)


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        (["right", "right", "left"], 11),
        (["on"], 20),
        (["back", "back"], 0),
        (["end", "right"], 40),
        (["end", "home"], 0),
        (["end", " "], 0),
        (["x"], 10),
    ],
)
def test_keys_move(keys, step):
    shown = screen(10)
    for key in keys:
        shown.key(key)
    assert shown.step == step
    assert shown.playing == (keys[-1] in " x")


def test_keys_pick_agents_and_change_the_speed():
    shown = screen()
    picked = []
    for key in "nnnnp":
        shown.key(key)
        picked.append(shown.agent)
    assert picked == [0, 1, 2, 0, 2]
    for key in "+++++++":
        shown.key(key)
    assert shown.fps == 100
    for _ in range(20):
        shown.key("-")
    assert shown.fps == 0.5
    shown.key("q")
    assert shown.over


@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (80, 24), (16, 30), (200, 60), (10, 11)])
def test_a_frame_keeps_to_the_screen_and_shows_the_picked_agent(columns, rows):
    shown = screen(20)
    shown.agent = 2
    lines = shown.lines(columns, rows, ascii=True, hint="keys")
    assert len(lines) <= rows
    world = [line.plain for line in lines[2:]]
    table = next(i for i, line in enumerate(world) if not line)
    assert all(len(line) <= columns for line in world[:table])
    row, col = (int(shown.recording.world.tracks[f"agent_{axis}"][20, 2]) for axis in ("row", "col"))
    assert any(c in line for line in world[:table] for c in "^v<>*"), (row, col)
    assert any(line.startswith("2 ") for line in world[table:])


SHOW = """
import sys
from metta_fast.contracts.recording import Recording
from metta_fast.episodes.terminal import show_in_terminal
show_in_terminal(Recording.load(sys.argv[1]), fps=10.0)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "busy.json"
    busy_recording(max_steps=60)[1].save(path)
    return str(path)


def test_the_reader_of_a_pipe_may_stop_early(data):
    command = f"{sys.executable} -c '{SHOW}' {data} | head -4"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert ended.stderr == ""
    assert ended.stdout.count("\n") == 4


def played(data, keys, **environment):
    """The recording in a terminal of 80 × 30 characters: what was drawn, and the exit code."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30", **environment})
        os.execv(sys.executable, [sys.executable, "-c", SHOW, data])
    drawn, keys, deadline, pressed = b"", list(keys), time.monotonic() + 60, 0.0
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                drawn += os.read(terminal, 1 << 16)
            except OSError:
                break
        if keys and b"steps/s" in drawn and time.monotonic() > pressed + 0.2:
            os.write(terminal, keys.pop(0))
            pressed = time.monotonic()
    os.close(terminal)
    return drawn.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_a_terminal_plays_in_colour_and_takes_keys(data):
    drawn, code = played(data, [b" ", b"\x1b[F", b"n", b"q"], LANG="C.UTF-8", PYTHONUTF8="1")
    assert code == 0
    assert re.search(r"\x1b\[[0-9;]*3\dm", drawn)
    assert "█" in drawn
    assert "step 60 of 60" in drawn
    assert drawn.count("\x1b[?1049h") == drawn.count("\x1b[?1049l") == 1


def test_no_color_is_plain_ascii(data):
    drawn, code = played(data, [b" ", b"q"], NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*[34]\dm", drawn)
    assert "##" in drawn
    assert drawn[drawn.index("\x1b[?1049h") :].isascii()
