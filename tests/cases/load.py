"""A state of any size goes back into workers: `python -m tests.cases.load BYTES` (an environment)."""

import faulthandler
import sys

import numpy as np

from metta_fast.vector import make_vector
from tests.cases.world import worlds

faulthandler.dump_traceback_later(30, exit=True)
keys = {"backend": "workers", "num_workers": 2, "worker_timeout_s": 10.0}
with make_vector(worlds(int(sys.argv[1])), 4, **keys) as vec:
    vec.async_reset(0)
    (block,) = vec.hold_all()
    saved = vec.state_dict()
    vec.send(block, np.zeros((4, 1), np.int32))
    vec.hold_all()
    vec.load_state_dict(saved)
    assert [int(env["s"][0]) for env in vec.state_dict()["envs"]["env"]] == [0, 0, 0, 0]
