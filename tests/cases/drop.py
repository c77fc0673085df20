"""A native vector that is dropped with a block in flight, by itself or in a cycle, ends well.

python -m tests.cases.drop alone        (or: cycle)
"""

import faulthandler
import gc
import sys
import time

import numpy as np

from metta_fast.envs import make_factory
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.vector import make_vector

faulthandler.enable()
config = resolve(compose(["env=grid", "env.num_envs=8192", "trainer.device=cpu"])).config
factory = make_factory(config.env)
for _ in range(3):
    vec = make_vector(factory, 8192, backend="threads", num_threads=2)
    vec.async_reset(0)
    block = vec.recv()
    vec.send(block, np.zeros(block.rows.action.shape, np.int32))
    if sys.argv[1] == "cycle":
        vec.me = vec
    del vec, block
    gc.collect()
    time.sleep(0.2)
