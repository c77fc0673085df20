"""A forked child that outlives a killed trainer does not keep the run's lock."""

import os
import signal
import tempfile
import time
from pathlib import Path

from metta_fast.storage.run_folder import RunDir

folder = Path(tempfile.mkdtemp())
trainer = os.fork()
if trainer == 0:
    mine = RunDir(folder)
    mine.lock()
    if os.fork() == 0:  # as an environment in this process might
        time.sleep(3)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(trainer, 0)
RunDir(folder).lock()
