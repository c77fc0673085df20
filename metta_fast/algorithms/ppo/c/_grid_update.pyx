"""A pass of PPO's update for a grid policy on the CPU (grid_update.h), without the GIL.

Called by grid_update.py, which checks what it is given. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from metta_fast.contracts.errors import no_threads

from metta_fast.policy.fused_act.grid_network cimport describe, mf_grid_net, mf_team, mf_team_start, point_weights
from metta_fast.algorithms.ppo.c.ppo_loss cimport MF_SUMS, mf_rows, mf_settings, mf_tensor, point_rows, point_tensor

cdef extern from "grid_update.h" nogil:
    enum: MF_TENSORS
    ctypedef struct mf_grid_update:
        mf_grid_net net
        mf_team team
        mf_tensor *tensor
    ctypedef struct mf_grid_rollout:
        mf_rows rows
        const uint8_t *obs
        const int32_t *action
    mf_grid_update *mf_grid_update_new(const mf_grid_net *net, const long *sizes, int slots, int64_t spin_ns, int most)
    void mf_grid_update_free(mf_grid_update *u)
    int mf_grid_pass(mf_grid_update *u, const mf_grid_rollout *rollout, const mf_settings *s, const int64_t *rows,
                     long total, int each, double step, double *sums)


cdef class Network:
    """A network's copies of weights, every slot's memory, and the threads."""

    cdef mf_grid_update *u
    cdef mf_grid_rollout rollout

    def __cinit__(self, int layout, uintptr_t scale, int hidden, nvec, sizes, int slots, double spin_s, int most):
        """scale: float32 [256]; nvec: of the heads; sizes: of the six tensors; slots: threads, the caller one of them;
        spin_s: how long idle ones spin; most: rows of a minibatch."""
        cdef mf_grid_net net
        cdef long[MF_TENSORS] numbers
        if len(sizes) != MF_TENSORS:
            raise ValueError(f"{len(sizes)} tensors, expected {MF_TENSORS}")
        describe(&net, layout, scale, hidden, nvec)
        for i, size in enumerate(sizes):
            numbers[i] = size
        self.u = mf_grid_update_new(&net, numbers, slots, <int64_t>(spin_s * 1e9), most)
        if self.u == NULL:
            raise MemoryError
        error = mf_team_start(&self.u.team)
        if error:
            raise no_threads(slots - 1, error)

    def __dealloc__(self):
        if self.u != NULL:
            mf_grid_update_free(self.u)

    def tensors(self, addresses):
        """addresses: (weight, first moment, second moment) of each layer's weight and bias."""
        for i, (weight, first, second) in enumerate(addresses):
            point_tensor(&self.u.tensor[i], weight, first, second)
        w1, b1, w2, b2, w3, b3 = (weight for weight, _, _ in addresses)
        point_weights(&self.u.net, w1, b1, w2, b2, w3, b3)

    def arrays(self, uintptr_t obs, uintptr_t action, uintptr_t logprob, uintptr_t value, uintptr_t advantage,
               uintptr_t returns, uintptr_t mask):
        """The rollout's."""
        self.rollout.obs = <const uint8_t *>obs
        self.rollout.action = <const int32_t *>action
        point_rows(&self.rollout.rows, logprob, value, advantage, returns, mask)

    def run(self, uintptr_t rows, long total, int each, double step, dict settings, double[::1] sums):
        """`mf_grid_pass`; settings by the fields' names."""
        cdef mf_settings s = settings
        cdef int whole
        if sums.shape[0] != MF_SUMS:
            raise ValueError(f"sums has {sums.shape[0]} entries, not {MF_SUMS}")
        with nogil:
            whole = mf_grid_pass(self.u, &self.rollout, &s, <const int64_t *>rows, total, each, step, &sums[0])
        return bool(whole)
