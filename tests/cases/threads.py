"""Python environments in threads: `sys.exit` in one is told at once, and threads end with their vector."""

import gc
import threading
import time

import numpy as np

from metta_fast.vector import WorkerError, make_vector
from tests.cases.world import World, worlds


class Quits(World):
    def step(self, action):
        raise SystemExit("the simulator gave up")


vec = make_vector(worlds(kind=Quits), 2, backend="threads", num_threads=2, worker_timeout_s=20.0)
vec.async_reset(0)
block = vec.recv()
began = time.monotonic()
try:
    vec.send(block, np.zeros((2, 1), np.int32))
    vec.recv()
except WorkerError as error:
    said = str(error)
else:
    said = ""
assert "the simulator gave up" in said
assert "hang" not in said
assert time.monotonic() - began < 10
vec.close()

before = threading.active_count()
for _ in range(3):
    make_vector(worlds(), 2, backend="threads", num_threads=2)
gc.collect()
deadline = time.monotonic() + 5
while threading.active_count() > before and time.monotonic() < deadline:
    time.sleep(0.02)
assert threading.active_count() == before, threading.enumerate()
