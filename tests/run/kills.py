"""Kills a grid run at random moments, checks the disk after each, and compares the end with an unbroken run.

    python -m tests.run.kills --kills 100
    python -m tests.run.kills --kills 20 vector.backend=workers vector.num_workers=2      # keys for both runs

Each session is a process of its own, `metta-fast train … resume=auto`, forked from one that has imported everything,
that gets SIGKILL: most at a random moment after its first epoch (checkpoints are written every second epoch, so many
die within one), the others while it starts and resumes. After each kill: every checkpoint is whole, the newest is no
older than the interval allows and than the one before, the rows of metrics have no gap and no double. At the end, the
killed and the unbroken run are the same bit for bit: weights, optimizer, environments, metrics. Ends with 1 where
that does not hold.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import metta_fast.algorithms.ppo.device_ppo
import metta_fast.envs.grid.env
import metta_fast.policy

# what a session would import is imported here
import metta_fast.run.build
import metta_fast.run.trainer
import metta_fast.vector.threads  # noqa: F401
from metta_fast.cli import main as train
from metta_fast.metrics.loggers import read_rows
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.same import curve, same
from tests.tiny import QUIET

INTERVAL = 2
"""Epochs from checkpoint to checkpoint."""
EPOCHS_PER_KILL = 3
"""Length of the run: a session trains up to five epochs, and the next one begins at the checkpoint before its end."""
EARLY = 0.15
"""Part of the kills that come while the process starts and resumes."""
HANGS_S = 300.0
LOG = "session.txt"
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
BATCH = 256
KEYS = (
    *QUIET,
    "env=grid",
    "env.num_envs=4",
    "env.max_steps=40",
    f"trainer.batch_size={BATCH}",
    f"trainer.minibatch_size={BATCH}",
    "trainer.update_epochs=1",
    "trainer.bptt_horizon=8",
    "trainer.deterministic=true",
    "policy.hidden_size=16",
    "policy.core=lstm",
    "vector.backend=threads",
    "vector.num_threads=2",
    "run.min_interval_s=0",
    f"run.checkpoint_interval={INTERVAL}",
    "run.name=r",
)
MORE = 20
"""Kills beyond those asked for, at most, until a session has come as far as a checkpoint: all can be too early."""


def start(folder: Path, epochs: int, keys: Sequence[str]) -> int:
    """A session's process; what it says goes to session.txt."""
    total = f"trainer.total_timesteps={epochs * BATCH}"
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable()
        code = train(["train", *KEYS, total, f"run.dir={folder}", "resume=auto", *keys])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def finish(folder: Path, epochs: int, keys: Sequence[str] = ()) -> None:
    """Train to the end."""
    code = os.waitstatus_to_exitcode(os.waitpid(start(folder, epochs, keys), 0)[1])
    assert code == 0, (folder / LOG).read_text()


def kill_once(folder: Path, epochs: int, keys: Sequence[str]) -> str:
    """A session that is killed; what it was at, as far as the disk shows it."""
    run = RunDir(folder / "r")
    last = before = size(run.metrics)
    (folder / LOG).unlink(missing_ok=True)
    pid, began = start(folder, epochs, keys), time.monotonic()
    if random.random() < EARLY or sum(1 for _ in read_rows(run.metrics)) > epochs - 8:
        time.sleep(random.uniform(0.0, 0.5))
    else:
        trained, took = 0, 0.1
        for _ in range(random.randint(1, 4)):
            epoch_began = time.monotonic()
            while (now := size(run.metrics)) <= last and not os.waitid(os.P_PID, pid, ENDED):
                last = min(last, now)  # a resume cuts the rows after its checkpoint first
                if time.monotonic() - began > HANGS_S:
                    os.kill(pid, signal.SIGABRT)  # faulthandler tells where it is
                    os.waitpid(pid, 0)
                    raise AssertionError(f"no epoch within {HANGS_S} s: {(folder / LOG).read_text()}")
                time.sleep(0.001)
            took = time.monotonic() - epoch_began if trained else took
            last, trained = now, trained + 1
        time.sleep(random.uniform(0.0, took))
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = (folder / LOG).read_text() if (folder / LOG).exists() else ""
    assert code in (-9, 0), f"the session ended by itself with {code}: {text}"
    assert "Traceback" not in text, text
    assert "damaged" not in text, text
    if code == 0:
        return "too late"
    if list(run.checkpoints.glob(".writing-*")):
        return "while it wrote a checkpoint"
    if list(run.checkpoints.glob(".removing-*")):
        return "while it removed an old checkpoint"
    return "while it trained" if size(run.metrics) != before else "while it started"


def look(folder: Path, least: int) -> int:
    """Check what a kill left; the step of the newest checkpoint, which must be at least `least`."""
    run = RunDir(folder / "r")
    epochs = [row["train/epoch"] for row in read_rows(run.metrics)]
    assert epochs == list(range(1, len(epochs) + 1)), f"rows with a gap or a double: {epochs}"
    states = [checkpoint.read(path) for _, path in checkpoint.steps(run.checkpoints)]
    assert states or len(epochs) <= INTERVAL, f"{len(epochs)} epochs and no checkpoint"
    if not states:
        return 0
    newest = states[-1]
    assert newest.load("algorithm")["epoch"] == newest.meta["epoch"]
    assert newest.load("env") is not None
    assert len(epochs) - newest.meta["epoch"] <= INTERVAL, (len(epochs), newest.meta["epoch"])
    assert newest.step >= least, (newest.step, least)
    return newest.step


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_equal(whole: Path, broken: Path) -> None:
    """Both runs end in the same state and have the same metrics, bit for bit."""
    a, b = (checkpoint.latest(RunDir(folder / "r").checkpoints, fail) for folder in (whole, broken))
    assert a is not None
    assert b is not None
    assert a.step == b.step
    for name in ("algorithm", "env"):
        same(a.load(name), b.load(name), name)
    assert curve(whole / "r") == curve(broken / "r")


def fail(text: str) -> None:
    raise AssertionError(text)


def many_kills(folder: Path, kills: int, keys: Sequence[str] = (), say: Callable[[str], None] = print) -> str:
    """Train once unbroken and once with so many kills.

    Returns:
        What was seen, in words.

    Raises:
        AssertionError: something was lost, doubled, damaged or different.
    """
    whole, broken = folder / "whole", folder / "broken"
    epochs = EPOCHS_PER_KILL * kills
    for path in (whole, broken):
        path.mkdir()
    finish(whole, epochs, keys)
    say(f"unbroken: {epochs} epochs")
    moments: Counter[str] = Counter()
    step = number = 0
    while number < kills or (step == 0 and number < kills + MORE):
        number += 1
        moment = kill_once(broken, epochs, keys)
        moments[moment] += 1
        step = look(broken, step)
        say(f"{number}: killed {moment}; the newest checkpoint is whole, step {step}")
    finish(broken, epochs, keys)
    check_equal(whole, broken)
    assert step > 0, "no session came as far as a checkpoint"
    seen = ", ".join(f"{count} {moment}" for moment, count in moments.most_common())
    return f"{number} kills ({seen}); {epochs} epochs, the same bit for bit as in the unbroken run"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run.kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("keys", nargs="*", metavar="key=value", help="for both runs")
    args = parser.parse_args(argv)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seen = many_kills(Path(folder), args.kills, args.keys, lambda text: print(text, flush=True))
    print(f"{seen}; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
