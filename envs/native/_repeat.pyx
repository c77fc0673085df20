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
        batch: a native batch (EnvBatch); held as long as this object.
        agents: agents of one environment.
    """

    cdef mf_repeat repeat
    cdef int32_t num_envs
    cdef object batch, rows
    cdef double[::1] sums

    def __cinit__(self, batch, int32_t agents, int32_t repeat):
        fn, ctx, self.num_envs = batch.native_job()
        self.batch, self.sums = batch, np.zeros(self.num_envs * agents)
        self.repeat.fn = <mf_repeat_fn><uintptr_t>fn
        self.repeat.ctx = <void *><uintptr_t>ctx
        self.repeat.agents, self.repeat.repeat = agents, repeat
        self.repeat.sum = &self.sums[0]

    def bind(self, rows):
        """Takes the batch's rows (`metta_fast.contracts.env.Rows`); kept until the next bind."""
        arrays = (rows.reward, rows.terminal, rows.truncation, rows.reset)
        for array, dtype in zip(arrays, (np.float32, np.bool_, np.bool_, np.bool_)):
            if array.shape != (self.sums.shape[0],) or array.dtype != dtype or not array.flags.c_contiguous:
                raise ValueError(f"rows are {array.dtype} {array.shape}, expected {np.dtype(dtype)} "
                                 f"({self.sums.shape[0]},)")
        self.rows = rows
        self.repeat.reward = <float *>at(rows.reward)
        self.repeat.terminal = <const uint8_t *>at(rows.terminal)
        self.repeat.truncation = <const uint8_t *>at(rows.truncation)
        self.repeat.reset = <const uint8_t *>at(rows.reset)

    def step(self):
        """Steps every environment for one decision; returns the job's fault, or 0."""
        cdef int32_t fault
        if self.rows is None:
            raise RuntimeError("bind() must come before step()")
        with nogil:
            fault = mf_repeat_range(&self.repeat, 0, self.num_envs)
        return fault

    def native_job(self):
        """Returns the job; see `metta_fast.contracts.env.EnvBatch.native_job`."""
        return <uintptr_t>&mf_repeat_range, <uintptr_t>&self.repeat, self.num_envs


cdef void *at(array) except *:
    return <void *><uintptr_t>array.ctypes.data
