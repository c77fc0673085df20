"""The bookkeeping that batches of environments over C functions share; see _batch.pyx."""

from libc.stdint cimport int32_t, int64_t, uint64_t

ctypedef int32_t (*range_function)(void *batch, int32_t lo, int32_t hi) noexcept nogil


cdef class NativeBatch:
    cdef int32_t num_envs, total_envs
    cdef object rows
    cdef bint started
    cdef void *context
    cdef range_function reset_range
    cdef range_function step_range
    cdef uint64_t *seed
    cdef int32_t *stagger_envs

    cdef int take(self, int64_t first_env, int32_t num_envs, int32_t total_envs) except -1
    cdef int point(self, rows, int64_t agents, dict sizes, void **to) except -1
    cdef int fail(self) except -1


cdef class StateBatch(NativeBatch):
    cdef readonly object states
    cdef str saved_with

    cdef int allocate(self, int64_t size, str saved_with) except -1
