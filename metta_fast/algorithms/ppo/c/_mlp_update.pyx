"""A pass of PPO's update over two small networks on the CPU (cpu_update.h), without the GIL.

Called by cpu_update.py, which checks what it is given. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int64_t, uintptr_t

from metta_fast.algorithms.ppo.c.ppo_loss cimport MF_SUMS, mf_rows, mf_settings, mf_tensor, point_rows, point_tensor

cdef extern from "mlp_update.h" nogil:
    enum: MF_TENSORS
    enum: MF_MOST_LEAVES
    ctypedef struct mf_net:
        mf_tensor *tensor
    ctypedef struct mf_update:
        mf_net actor
        mf_net critic
        mf_tensor log_std
    ctypedef struct mf_leaf:
        const float *rows
        const float *shift
        const float *scale
        int size
    ctypedef struct mf_view:
        mf_leaf *leaf
        int leaves
    ctypedef struct mf_rollout:
        mf_view actor
        mf_view critic
        const float *action
        mf_rows rows
    mf_update *mf_update_new(int inputs, int seen, int hidden, int actions, int activation, int most)
    void mf_update_free(mf_update *u)
    int mf_pass(mf_update *u, const mf_rollout *rollout, const mf_settings *s, const int64_t *rows, long total,
                int each, double step, double *sums)


cdef class Networks:
    """Both networks' scratch memory, and where their weights, moments and rows lie."""

    cdef mf_update *u
    cdef mf_rollout rollout

    def __cinit__(self, int inputs, int seen, int hidden, int actions, int activation, int most):
        self.u = mf_update_new(inputs, seen, hidden, actions, activation, most)
        if self.u == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.u != NULL:
            mf_update_free(self.u)

    def tensors(self, addresses):
        """addresses: (weight, first moment, second moment) of log_std, then of each network's six tensors."""
        cdef mf_tensor *tensor
        for i, (weight, first, second) in enumerate(addresses):
            if i == 0:
                tensor = &self.u.log_std
            elif i <= MF_TENSORS:
                tensor = &self.u.actor.tensor[i - 1]
            else:
                tensor = &self.u.critic.tensor[i - 1 - MF_TENSORS]
            point_tensor(tensor, weight, first, second)

    def leaves(self, actor, critic):
        """What each network reads: [(rows, shift, scale, numbers in a row), …]; shift and scale 0: as they are."""
        view(&self.rollout.actor, actor)
        view(&self.rollout.critic, critic)

    def rows(self, uintptr_t action, uintptr_t logprob, uintptr_t value, uintptr_t advantage, uintptr_t returns,
             uintptr_t mask):
        """The rollout's other arrays."""
        self.rollout.action = <const float *>action
        point_rows(&self.rollout.rows, logprob, value, advantage, returns, mask)

    def run(self, uintptr_t rows, long total, int each, double step, dict settings, double[::1] sums):
        """`mf_pass`; settings by the fields' names."""
        cdef mf_settings s = settings
        cdef int whole
        if sums.shape[0] != MF_SUMS:
            raise ValueError(f"sums has {sums.shape[0]} entries, not {MF_SUMS}")
        with nogil:
            whole = mf_pass(self.u, &self.rollout, &s, <const int64_t *>rows, total, each, step, &sums[0])
        return bool(whole)


MOST_LEAVES = MF_MOST_LEAVES


cdef int view(mf_view *of, given) except -1:
    if len(given) > MF_MOST_LEAVES:
        raise ValueError(f"{len(given)} leaves, expected {MF_MOST_LEAVES} at most")
    of.leaves = len(given)
    for i, (rows, shift, scale, size) in enumerate(given):
        of.leaf[i].rows = <const float *><uintptr_t>rows
        of.leaf[i].shift = <const float *><uintptr_t>shift
        of.leaf[i].scale = <const float *><uintptr_t>scale
        of.leaf[i].size = size
    return 0
