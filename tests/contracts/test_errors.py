"""A UserError that a program does not catch shows the program's frames and the message, none of ours."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import metta_fast
from metta_fast.contracts.errors import UserError

PROGRAM = """
import metta_fast
{hook}
def begin():
    {call}

begin()
"""
CALLS = {
    "load_policy": "metta_fast.load_policy('nowhere')",
    "train": "metta_fast.train(env='counter', trainer__gama=1)",
    "compose": "from metta_fast.resolve.compose import compose; compose(['trainer.gamma=high'])",
}


def ended(tmp_path: Path, call: str, hook: str = "") -> str:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(call=call, hook=hook))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("call", CALLS)
def test_a_program_shows_its_own_frames_only(call: str, tmp_path: Path) -> None:
    told = ended(tmp_path, CALLS[call])
    assert told.startswith("Traceback (most recent call last):\n")
    assert told.count('File "') == told.count("program.py") == 2, told
    assert "in begin\n" in told
    assert told.splitlines()[-1].startswith("metta_fast.UserError: ")
    assert "direct cause" not in told


def test_other_errors_and_hooks_of_the_program_are_left_alone(tmp_path: Path) -> None:
    after = "\n    try:\n        metta_fast.load_policy('nowhere')\n    except metta_fast.UserError:\n        1 / 0"
    told = ended(tmp_path, after)
    assert "ZeroDivisionError" in told
    assert "The above exception" in told or "During handling" in told
    hook = "import sys; sys.excepthook = lambda *error: print('its own', file=sys.stderr)"
    assert ended(tmp_path, CALLS["compose"], hook) == "its own\n"


def test_a_notebook_shows_the_message_and_the_cell() -> None:
    with pytest.raises(UserError) as caught:
        metta_fast.load_policy("nowhere")
    lines = caught.value._render_traceback_()
    assert lines[0] == "Traceback (most recent call last):"
    assert len([line for line in lines if "File" in line]) == 1
    assert lines[-1].startswith("metta_fast.UserError: no run or checkpoint nowhere; give a folder.")
    assert UserError("nothing raised it")._render_traceback_() == ["metta_fast.UserError: nothing raised it"]


def test_it_travels_between_processes() -> None:
    assert isinstance(pickle.loads(pickle.dumps(UserError("x"))), UserError)
