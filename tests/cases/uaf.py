"""A native thread that hangs past `close` writes into no memory of another owner."""

import ctypes
import gc
import time

from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import Ready

JOB = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
SIZES = (128, 192, 256, 320)


@JOB
def hang(context, first, last):
    time.sleep(0.8)
    return 0


address = ctypes.cast(hang, ctypes.c_void_p).value
ready = Ready(2)
pool = Pool(ready, [(address, 0, 1), (address, 0, 1)], 1)
pool.step(0)
time.sleep(0.1)
assert not pool.close(0.1), "the thread ended: nothing is shown"
del pool, ready
gc.collect()
libc = ctypes.CDLL(None)  # takes memory that was freed again, and fills it
libc.aligned_alloc.restype = ctypes.c_void_p
libc.aligned_alloc.argtypes = [ctypes.c_size_t] * 2
taken = [(libc.aligned_alloc(64, size), size) for size in SIZES for _ in range(4)]
for at, size in taken:
    ctypes.memset(at, 0xAB, size)
time.sleep(1.2)
for at, size in taken:
    assert ctypes.string_at(at, size) == b"\xab" * size, "memory of another owner was written"
