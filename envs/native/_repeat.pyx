"""Steps native environments several times with each action (repeat.h); used by envs/repeat.py."""

from libc.stdint cimport int32_t, uint8_t, uintptr_t

import numpy as np

cdef extern from "repeat.h" nogil:
    ctypedef int32_t (*mf_repeat_fn)(void *ctx, int32_t lo, int32_t hi) noexcept nogil
    ctypedef struct mf_repeat:
        mf_repeat_fn fn
        void *ctx
        int32_t agents, repeat
        double *sum
        float *reward
        const uint8_t *terminal
        const uint8_t *truncation
        const uint8_t *reset
    int32_t mf_repeat_range(void *repeat, int32_t lo, int32_t hi) noexcept nogil


cdef class RepeatJob:
    """Runs the job of a native batch `repeat` times per call.

    Args:
        job: the batch's job: (address of fn, address of ctx, number of envs); it must stay alive.
        agents: agents of one environment.
        rows: the batch's rows (`metta_fast.contracts.env.Rows`).
    """

    cdef mf_repeat repeat
    cdef int32_t num_envs
    cdef object held

    def __cinit__(self, job, int32_t agents, int32_t repeat, rows):
        fn, ctx, self.num_envs = job
        sums = np.zeros(self.num_envs * agents)
        arrays = (rows.reward, rows.terminal, rows.truncation, rows.reset)
        for array, dtype in zip(arrays, (np.float32, np.bool_, np.bool_, np.bool_)):
            if array.shape != sums.shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise ValueError(f"rows are {array.dtype} {array.shape}, expected {np.dtype(dtype)} {sums.shape}")
        self.held = (sums, rows)
        self.repeat.fn = <mf_repeat_fn><uintptr_t>fn
        self.repeat.ctx = <void *><uintptr_t>ctx
        self.repeat.agents, self.repeat.repeat = agents, repeat
        self.repeat.sum = <double *>at(sums)
        self.repeat.reward = <float *>at(rows.reward)
        self.repeat.terminal = <const uint8_t *>at(rows.terminal)
        self.repeat.truncation = <const uint8_t *>at(rows.truncation)
        self.repeat.reset = <const uint8_t *>at(rows.reset)

    def step(self):
        """Steps every environment for one decision; returns the job's fault, or 0."""
        cdef int32_t fault
        with nogil:
            fault = mf_repeat_range(&self.repeat, 0, self.num_envs)
        return fault

    def native_job(self):
        """Returns the job; see `metta_fast.contracts.env.EnvBatch.native_job`."""
        return <uintptr_t>&mf_repeat_range, <uintptr_t>&self.repeat, self.num_envs


cdef void *at(array) except *:
    return <void *><uintptr_t>array.ctypes.data
