"""A snapshot says what the environments were when it was taken: `python -m tests.cases.alias BACKEND`."""

import sys

import numpy as np

from metta_fast.vector import make_vector
from tests.cases.world import worlds

with make_vector(worlds(), 2, backend=sys.argv[1]) as vec:
    vec.async_reset(0)
    (block,) = vec.hold_all()
    snapshot = vec.snapshot()
    vec.send(block, np.zeros((2, 1), np.int32))
    vec.recv()
    assert [env["s"].tolist() for env in snapshot()["envs"]["env"]] == [[0, 0, 0]] * 2
    assert [env["s"].tolist() for env in vec.snapshot()()["envs"]["env"]] == [[1, 1, 1]] * 2
