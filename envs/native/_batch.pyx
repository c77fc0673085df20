"""Keeps the books of a batch of environments over C functions: counts, rows, start and step (`EnvBatch`).

    cdef class GridBatch(NativeBatch):         its C struct holds seed, stagger_envs and the pointers to rows
        __cinit__: take(…), then context, reset_range, step_range, seed, stagger_envs
        bind:      point(rows, …)

A step is one call of a C function, without Python in it; it allocates nothing.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t

import numpy as np

FLAGS = ("terminal", "truncation", "mask", "reset")
ORDER = ("action", "obs", "reward", *FLAGS, "stats")
"""Pointers to rows in the order of the C structs (rows.h, ../robot/physics.h)."""


cdef class NativeBatch:
    """Holds environments first_env … first_env+num_envs-1 of total_envs."""

    cdef int take(self, int64_t first_env, int32_t num_envs, int32_t total_envs) except -1:
        """Takes the counts, if the environments are among all of them."""
        if num_envs < 1 or first_env < 0 or first_env + num_envs > total_envs:
            raise ValueError(f"envs {first_env} … {first_env + num_envs - 1} are not among {total_envs}")
        self.num_envs, self.total_envs = num_envs, total_envs
        return 0

    cdef int point(self, rows, int64_t agents, dict sizes, void **to) except -1:
        """Takes the slab's rows (`metta_fast.contracts.env.Rows`) and writes their addresses to `to`, in ORDER.

        sizes: (dtype, numbers for an agent) of action, obs, stats, and of other leaves of rows.obs, which follow.
        """
        more = [name for name in sizes if name not in ORDER]
        wanted = {**sizes, "reward": (np.float32, 1), **{name: (np.bool_, 1) for name in FLAGS}}
        found = []
        for name in (*ORDER, *more):
            array = rows.obs[name] if name == "obs" or name in more else getattr(rows, name)
            dtype, width = wanted[name]
            if array.dtype != dtype or array.shape[0] != agents or array.size != agents * width:
                raise ValueError(f"rows.{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} with "
                                 f"{width} numbers for each of {agents} agents")
            if not array.flags.c_contiguous:
                raise ValueError(f"rows.{name} must be contiguous")
            found.append(array.ctypes.data)
        self.rows = rows
        for i, address in enumerate(found):
            to[<int>i] = <void *><uintptr_t>address
        return 0

    cdef int fail(self) except -1:
        """Raises what a C function returned 1 for."""
        return 0

    def reset(self, uint64_t seed, *, bint stagger=False):
        """Start every env from its beginning and write row 0; what env i does depends on (seed, i) only."""
        if self.rows is None:
            raise RuntimeError("bind() must come before reset()")
        self.seed[0] = seed
        self.stagger_envs[0] = self.total_envs if stagger else 0
        cdef int32_t faulty
        with nogil:
            faulty = self.reset_range(self.context, 0, self.num_envs)
        if faulty:
            self.fail()
        self.started = True

    def step(self):
        """Advance every env by one step, reading actions from and writing to the bound rows."""
        if not self.started or self.rows is None:
            raise RuntimeError("bind() and reset() must come before step()")
        cdef int32_t faulty
        with nogil:
            faulty = self.step_range(self.context, 0, self.num_envs)
        if faulty:
            self.fail()

    def native_job(self):
        """Returns the address of `int32_t fn(void *ctx, int32_t lo, int32_t hi)`, that of ctx, and num_envs (EnvBatch)."""
        return <uintptr_t>self.step_range, <uintptr_t>self.context, self.num_envs

    def close(self):
        """Nothing to free by hand."""


cdef class StateBatch(NativeBatch):
    """A batch whose whole state are the bytes of its environments and the seed.

    Attributes:
        states: uint8 [num_envs, bytes of one state], each state at a multiple of 64 bytes if its size is one.
    """

    cdef int allocate(self, int64_t size, str saved_with) except -1:
        """Makes the states. saved_with: what must be as it was for a saved state to fit, for the message."""
        self.states = aligned(self.num_envs * size).reshape(self.num_envs, -1)
        self.saved_with = saved_with
        return 0

    def state_dict(self):
        """Returns {"states": uint8 [num_envs, bytes], "seed": int}: all that is needed to go on bit for bit."""
        return {"states": self.states.copy(), "seed": int(self.seed[0])}

    def load_state_dict(self, state):
        """Continues from `state_dict()` of the same envs and configuration; the rows are the caller's to restore."""
        states = np.asarray(state["states"], np.uint8)
        if states.shape != self.states.shape:
            raise ValueError(f"state is {states.shape} (envs, bytes), expected {self.states.shape}: it was saved with "
                             f"{self.saved_with} or another number of environments")
        self.states[...] = states
        self.seed[0] = state["seed"]
        self.started = True


def aligned(int64_t size):
    """Returns `size` zeroed bytes that begin at a multiple of 64."""
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start:start + size]
