"""Steps a batch of environments whose rules are in a shared library (library.h).

    batch = LibraryBatch({"mf_reset": address, …}, params, first_env, num_envs, total_envs, sizes)

metta_fast/envs/c_env loads the library.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from metta_fast.envs.native._batch import aligned
from metta_fast.envs.native._batch cimport StateBatch, range_function

ctypedef void (*begin_function)(void *batch, const void *params, uint8_t *states, uint32_t first_env, int32_t max_steps,
                                void **places) noexcept nogil


cdef class LibraryBatch(StateBatch):
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

    def __cinit__(self, dict addresses, params, int64_t first_env, int32_t num_envs, int32_t total_envs, dict sizes,
                  keep=None):
        self.take(first_env, num_envs, total_envs)
        self.params, self.keep, self.agents = params, keep, sizes["agents"]
        self.sizes = {name: sizes[name] for name in ("obs", "action", "stats")}
        self.memory = aligned(sizes["batch"])
        self.allocate(sizes["state"], "other rules, parameters")
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
