"""Steps a batch of environments whose rules are in a shared library (library.h).

    batch = LibraryBatch({"mf_reset": address, …}, params, first_env, num_envs, total_envs, sizes)

metta_fast/envs/c_env loads the library. Nothing here allocates after construction but `state_dict`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

import numpy as np

from metta_fast.envs.native._batch cimport NativeBatch, range_function

ctypedef void (*begin_function)(void *batch, const void *params, uint8_t *states, uint32_t first_env, int32_t max_steps,
                                void **places) noexcept nogil


cdef class LibraryBatch(NativeBatch):
    """Environments first_env … first_env+num_envs-1: `metta_fast.contracts.env.EnvBatch`.

    Args:
        addresses: of mf_begin, mf_reset and mf_step.
        params: uint8, the bytes of the prepared ENV_params.
        sizes: of "batch" and "state" in bytes, and "agents", "max_steps", and row sizes as `NativeBatch.point` takes.
        keep: is held as long as the batch, as the loaded library.
    """

    cdef object params, memory, keep, sizes
    cdef int64_t agents
    cdef void *places[3]
    cdef readonly object states
    """uint8 [num_envs, bytes of one state]."""

    def __cinit__(self, dict addresses, params, int64_t first_env, int32_t num_envs, int32_t total_envs, dict sizes,
                  keep=None):
        self.take(first_env, num_envs, total_envs)
        self.params, self.keep, self.agents = params, keep, sizes["agents"]
        self.sizes = {name: sizes[name] for name in ("obs", "action", "stats")}
        self.memory = aligned(sizes["batch"])
        self.states = aligned(num_envs * sizes["state"]).reshape(num_envs, -1)
        self.context = <void *><uintptr_t>self.memory.ctypes.data
        self.reset_range = <range_function><uintptr_t>addresses["mf_reset"]
        self.step_range = <range_function><uintptr_t>addresses["mf_step"]
        begin = <begin_function><uintptr_t>addresses["mf_begin"]
        begin(self.context, <void *><uintptr_t>params.ctypes.data, <uint8_t *><uintptr_t>self.states.ctypes.data,
              <uint32_t>first_env, sizes["max_steps"], self.places)
        self.seed, self.stagger_envs = <uint64_t *>self.places[0], <int32_t *>self.places[1]

    def bind(self, rows):
        """Takes the slab's rows (`metta_fast.contracts.env.Rows`) of this batch's agents; kept until the next bind."""
        self.point(rows, self.num_envs * self.agents, self.sizes, <void **>self.places[2])

    def state_dict(self):
        """Returns {"states": uint8 [num_envs, bytes], "seed": int}: all that is needed to go on bit for bit."""
        return {"states": self.states.copy(), "seed": int(self.seed[0])}

    def load_state_dict(self, state):
        """Continues from `state_dict()` of the same envs and parameters; the rows are the caller's to restore."""
        states = np.asarray(state["states"], np.uint8)
        if states.shape != self.states.shape:
            raise ValueError(f"state is {states.shape} (envs, bytes), expected {self.states.shape}: it was saved with "
                             "other rules, parameters or another number of environments")
        self.states[...] = states
        self.seed[0] = state["seed"]
        self.started = True


def aligned(int64_t size):
    """Returns `size` zeroed bytes that begin at a multiple of 64."""
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start:start + size]
