"""Workers that cannot be made for want of descriptors leave none open, and the error says what to do."""

import os
import resource

from metta_fast.vector import make_vector
from tests.cases.world import worlds


def count():
    return len(os.listdir("/proc/self/fd"))


make_vector(worlds(), 64, backend="workers", num_workers=2).close()
before = count()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for limit in range(before + 2, before + 60, 7):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        make_vector(worlds(), 64, backend="workers", num_workers=64).close()
    except Exception as error:
        print(f"{limit}: {type(error).__name__}: {error}")
    else:
        raise AssertionError(f"64 workers with {limit} descriptors")
    assert count() == before, (limit, before, count())
