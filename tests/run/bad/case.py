"""Describes one mistake of a user, runs it in a process of its own, and judges the answer.

A case is forked from a process that has imported everything, so that hundreds take minutes. With `started` it is a
real process: where the interpreter's start, or the file limit, is the matter.

Place in the flow: tests/run/bad_inputs.py runs the tables of this folder.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MOST_LINES = 4
LIMIT_S = 40.0
"""Seconds until a case counts as hung; a refusal takes less than one."""
COMMANDS = ("train", "warm", "eval", "replay", "export", "monitor", "new-env", "new-robot", "doctor", "bench")
POLL_S = 0.01


@dataclass(frozen=True)
class Case:
    """One command and the answer that is right."""

    words: tuple[str, ...]
    """As typed, after `metta-fast`. {run}: a finished run; {bad}: a folder of damaged files."""
    says: tuple[str, ...] = ()
    """Texts that the message holds, spaces aside."""
    rc: tuple[int, ...] = (2,)
    """Exit codes that are right. `says` holds for 2 only."""
    before: Callable[[Path], None] | None = None
    """Prepares the process: its limits, user, folder. Given the folder of the case."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables."""
    started: bool = False
    """A real process: `python -m metta_fast`, or the program that is the first word."""
    lines: int = MOST_LINES

    def __str__(self) -> str:
        words = " ".join(word if len(word) < 90 else f"{word[:60]}…({len(word)})" for word in self.words)
        return words + (f"  [{self.before.__name__}]" if self.before else "")


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    """Exit code; negative: the signal that ended it."""
    out: str
    err: str
    seconds: float
    hung: bool = False


def judge(case: Case, answer: Answer) -> str | None:
    """Returns what is wrong with an answer, or None."""
    text = answer.out + answer.err
    if answer.hung:
        return "hang"
    if answer.code < 0:
        return f"crash: signal {-answer.code}"
    if "Traceback (most recent call last)" in text or re.search(r'^\s*File ".*", line \d+', text, re.M):
        return "traceback"
    if answer.code not in case.rc:
        return f"silent: exit code {answer.code}" if answer.code == 0 else f"exit code {answer.code}"
    if answer.code != 2:
        return None
    message = answer.err.strip() or answer.out.strip()
    if not message:
        return "silent"
    error = message[message.find("error:") :]
    if "error:" not in message and "usage:" not in message:
        return "no line begins with error:"
    if len(error.splitlines()) > case.lines:
        return f"{len(error.splitlines())} lines"
    if any(len(line) > 1500 for line in error.splitlines()):
        return "a line of more than 1500 letters"
    bare = re.sub(r"\s", "", error)
    missing = [part for part in case.says if re.sub(r"\s", "", part) not in bare]
    return f"does not name {missing[0][:60]!r}" if missing else None


def run(case: Case, folder: Path, places: dict[str, str], limit_s: float = LIMIT_S) -> Answer:
    """Runs a case in `folder`, which is made and removed, and returns the answer.

    Args:
        places: what {name} in the words stands for.
    """
    folder.mkdir(parents=True)
    words = [filled(word, {**places, "here": str(folder)}) for word in case.words]
    out, err = folder.with_suffix(".out"), folder.with_suffix(".err")
    begin = time.monotonic()
    with open(out, "wb") as to_out, open(err, "wb") as to_err:
        child = (_start if case.started else _fork)(case, words, folder, to_out.fileno(), to_err.fileno())
        hung = not _wait(child, begin + limit_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    seconds = time.monotonic() - begin
    answer = Answer(code, _text(out), _text(err), seconds, hung)
    shutil.rmtree(folder, ignore_errors=True)
    out.unlink()
    err.unlink()
    return answer


def filled(word: str, places: dict[str, str]) -> str:
    """Returns a word with its {names} replaced."""
    for name, value in places.items():
        word = word.replace("{" + name + "}", value)
    return word


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _wait(child: int, until: float) -> bool:
    """Waits for the end of a child without reaping it. Returns False if it is late."""
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def _fork(case: Case, words: Sequence[str], folder: Path, out: int, err: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.environ.update(case.variables)
        if case.before is not None:
            case.before(folder)
        code = _main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 255)


def _main(words: Sequence[str]) -> int:
    """Calls what a command's script calls."""
    if words[0] == "benchmark_performance.py":
        from metta_fast.bench.main import main as measure

        return measure(list(words[1:]))
    from metta_fast.cli import main

    if words[0] == "run_optimized.py":
        return main(["train", *words[1:]], default_hardware="ultra_fast")
    return main(list(words))


def _start(case: Case, words: Sequence[str], folder: Path, out: int, err: int) -> int:
    program = [str(ROOT / words[0])] if words[0].endswith(".py") else ["-m", "metta_fast"]
    rest = words[1:] if words[0].endswith(".py") else words
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | dict(case.variables)

    def prepare() -> None:
        os.chdir(folder)
        if case.before is not None:
            case.before(folder)

    process = subprocess.Popen(
        [sys.executable, *program, *rest],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=variables,
        preexec_fn=prepare,
        start_new_session=True,
    )
    process.returncode = 0  # reaped by `run`
    return process.pid
