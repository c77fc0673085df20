"""A worker that is killed is replaced (vector.restart_workers), however large the environments' state is."""

import faulthandler
import os
import signal
import tempfile
from pathlib import Path

from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.callbacks import Callback, Callbacks
from metta_fast.run.trainer import Trainer
from tests.tiny import QUIET, named

faulthandler.dump_traceback_later(60, exit=True)


class Killer(Callback):
    """Kills a worker at the second row, and ends the run three rows after that."""

    rows = 0

    def on_epoch(self, trainer, metrics):
        self.rows += 1
        if self.rows == 2:
            os.kill(trainer.vec.worker_pids[0], signal.SIGKILL)
        if self.rows == 5:
            trainer.stop()


with tempfile.TemporaryDirectory() as folder:
    words = [
        *QUIET, *named(Path(folder)), "env=grid", "env.num_envs=256", "vector.backend=workers", "vector.num_workers=2",
        "vector.restart_workers=3", "run.min_interval_s=0", "run.log_interval=1",
    ]  # fmt: skip
    trainer = Trainer(resolve(compose(words)), callbacks=Callbacks([Killer()]))
    assert trainer.run() == 0
    assert "workers restarted (1 of 3" in (Path(folder) / "r/train.log").read_text()
