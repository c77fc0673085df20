"""Tests stdout and stderr that cannot be written: dropped in a training, an error in other commands."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys

import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.machine.output import run_command, tolerant_output
from tests.export.runs import fake_run
from tests.tiny import COUNTER, named

NOISY = """
import faulthandler, gymnasium, logging, sys, warnings

class Noisy(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self.observation_space.low, {}
    def step(self, action):
        self.count += 1
        print("x" * 5000)
        sys.stdout.flush()
        print("░", file=sys.stderr)
        sys.stderr.buffer.write(b"bytes")
        sys.stderr.flush()
        warnings.warn(f"{self.count}")
        logging.getLogger("mine").error("logged")
        faulthandler.dump_traceback()
        return self.observation_space.low, 0.0, False, self.count > 5, {}

def make(config):
    return lambda number=0: Noisy()
"""
TRAIN = [*COUNTER, "env=noisy:make", "env.num_envs=8", "trainer.total_timesteps=256"]


def full():
    return open("/dev/full", "w")


def broken():
    """A pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w")


def closed():
    with open(os.devnull, "w") as stream:
        return stream


def missing():
    return None


@pytest.fixture
def noisy(tmp_path, monkeypatch):
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("noisy", None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [full, broken, closed, missing])
@pytest.mark.parametrize("dashboard", ["plain", "rich"])
def test_a_training_goes_on(tmp_path, monkeypatch, noisy, kind, dashboard):
    monkeypatch.setattr(sys, "stdout", kind())
    monkeypatch.setattr(sys, "stderr", kind())
    words = [*TRAIN, *named(tmp_path), f"run.dashboard={dashboard}", "vector.backend=serial"]
    assert main(["train", *words]) == 0
    assert (tmp_path / "r" / "checkpoints").is_dir()


def test_a_training_with_workers_goes_on_behind_head_and_a_full_disk(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    words = [
        *TRAIN,
        *named(tmp_path),
        "run.dashboard=plain",
        "vector.backend=workers",
        "vector.num_workers=2",
    ]
    train = f"{shlex.quote(sys.executable)} -m metta_fast train {' '.join(words)}"
    shell = f"{train} 2>/dev/full | head -1; echo ${{PIPESTATUS[0]}}"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", os.getcwd())])
    done = subprocess.run(
        ["bash", "-c", shell],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.stdout.splitlines()[-1] == "0", done.stdout
    assert done.stderr == ""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fake_run(tmp_path_factory.mktemp("runs") / "r", "env=counter")


@pytest.mark.parametrize("kind", [full, broken])
@pytest.mark.parametrize(
    "words",
    [
        ["eval", "{run}", "--episodes", "2"],
        ["replay", "{run}", "--html", "{out}.html"],
        ["replay", "{run}", "--terminal"],
        ["export", "{run}", "--out", "{out}.pt"],
        ["bench", "--help"],
        ["train", "--help"],
        ["train", "env=counter", "--cfg", "job"],
        ["--version"],
    ],
)
def test_another_command_says_so(tmp_path, monkeypatch, run, kind, words):
    monkeypatch.setattr(sys, "stdout", kind())
    monkeypatch.setattr(sys, "stderr", told := io.StringIO())
    try:
        code = main([word.format(run=run, out=tmp_path / "out") for word in words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    why = {full: "No space left on device", broken: "Broken pipe"}[kind]
    last = told.getvalue().splitlines()[-1]
    assert last == f"error: cannot write the output to stdout: {why}; write it to another file or program"
    assert told.getvalue().count("error: ") == 1
    assert "Traceback" not in told.getvalue()


def test_a_full_stderr_ends_no_command(monkeypatch, capsys, run):
    monkeypatch.setattr(sys, "stderr", full())
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert main(["eval", "nowhere"]) == 2
    assert "counter: 2 episodes" in capsys.readouterr().out


@pytest.mark.parametrize("to", ["| true", ">/dev/full"])
def test_the_exit_code_is_2_although_python_ends_with_120(to):
    """The text waits in a buffer until the end; Python would try again to write it."""
    shell = f"{shlex.quote(sys.executable)} -m metta_fast --help {to}; echo ${{PIPESTATUS[0]}}"
    # a pipe holds such a short text even without a reader
    shell = shell.replace("| true", "| (exec <&-; sleep 1)")
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2\n"
    assert done.stderr.count("\n") == 1
    assert "cannot write the output" in done.stderr


def test_characters_that_the_terminal_lacks_are_replaced(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))

    def command():
        print("a – b ░")
        return 0

    assert run_command(command) == 0
    assert raw.getvalue() == b"a ? b ?\n"


def test_streams_are_as_before_afterwards():
    before = sys.stdout, sys.stderr
    with tolerant_output(), tolerant_output():
        assert sys.stdout is not before[0]
        assert sys.stdout.encoding == before[0].encoding
    assert (sys.stdout, sys.stderr) == before

    def wrong():
        raise UserError("x=1: expected 2")

    assert run_command(wrong) == 2
    assert (sys.stdout, sys.stderr) == before


def test_a_file_does_not_take_the_number_of_a_closed_stream(tmp_path):
    """What a library in C writes to stderr would come into it."""
    code = (
        "import os, metta_fast.run.trainer as t; real = t.Trainer._train;"
        "t.Trainer._train = lambda self: (os.write(2, b'from C'), os.write(1, b'from C'), real(self));"
        "import sys; from metta_fast.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["train", *COUNTER, *named(tmp_path)]
    shell = 'exec "$@" trainer.total_timesteps=256 >&- 2>&-'
    done = subprocess.run(["bash", "-c", shell, "bash", sys.executable, "-c", code, *words], timeout=100)
    assert done.returncode == 0
    for path in (tmp_path / "r").rglob("*"):
        assert not path.is_file() or b"from C" not in path.read_bytes(), path


def test_a_program_that_wraps_write_is_called_once_a_text(monkeypatch):
    """As wandb does to capture the console."""
    kept, out = [], io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with tolerant_output():
        before = sys.stdout.write

        def wrapped(text):
            kept.append(text)
            return before(text)

        sys.stdout.write = wrapped
        sys.stdout.write("seen")
    assert kept == ["seen"]
    assert out.getvalue() == "seen"
