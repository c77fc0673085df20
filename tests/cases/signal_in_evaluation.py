"""SIGTERM during an evaluation ends the run within a second (plus the time to save), with the fresh snapshot."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from metta_fast.storage import checkpoint
from tests.tiny import QUIET, named

EPISODES = 20_000
"""So many that the evaluation lasts for minutes."""

with tempfile.TemporaryDirectory() as folder:
    words = [
        *QUIET, *named(Path(folder)), "env=grid", "env.num_envs=64", "run.evaluate_interval=1", "run.min_interval_s=0",
        f"run.evaluate_episodes={EPISODES}", "trainer.total_timesteps=100000000", "run.dashboard=plain",
    ]  # fmt: skip
    command = [sys.executable, "-P", "-m", "metta_fast", "train", *words]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = Path(folder) / "r/train.log"
    deadline = time.monotonic() + 60
    while "first update" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline
        assert run.poll() is None
        time.sleep(0.05)
    time.sleep(1.5)  # the boundary is over: it evaluates
    run.send_signal(signal.SIGTERM)
    began = time.monotonic()
    try:
        out, _ = run.communicate(timeout=15)
    finally:
        run.kill()
    assert run.returncode == 143, out
    found = checkpoint.latest(Path(folder) / "r/checkpoints", print)
    assert found is not None, out
    assert found.step > 0, out
    assert re.search(r"stopped by SIGTERM", out), out
    print(f"ended {time.monotonic() - began:.1f} s after SIGTERM")
