"""A minibatch of PPO's update for a grid policy on the CPU (grid_update.h), in pieces without the GIL for threads to share.

Called by grid_update.py, which checks what it is given. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

cdef extern from "grid_update.h" nogil:
    enum: MF_TENSORS
    enum: MF_SUMS
    enum: MF_MOST_HEADS
    ctypedef struct mf_grid_net:
        int layout, hidden, outputs, heads
        int *nvec
        const float *scale
        const float *w1
        const float *b1
        const float *w2
        const float *b2
        const float *w3
        const float *b3
    ctypedef struct mf_tensor:
        float *weight
        float *first
        float *second
    ctypedef struct mf_grid_update:
        mf_grid_net net
        mf_tensor *tensor
    ctypedef struct mf_rows:
        const float *logprob
        const float *value
        const float *advantage
        const float *returns
        const uint8_t *mask
    ctypedef struct mf_grid_rollout:
        mf_rows rows
        const uint8_t *obs
        const int32_t *action
    ctypedef struct mf_settings:
        float clip, vf_coef, vf_clip, entropy_coef, max_norm, target_kl
        double rate, beta1, beta2, epsilon
        int normalize_advantage
    ctypedef struct mf_adam:
        pass
    mf_grid_update *mf_grid_update_new(const mf_grid_net *net, const long *sizes, int slots, int most)
    void mf_grid_update_free(mf_grid_update *u)
    void mf_grid_begin(mf_grid_update *u, const mf_grid_rollout *rollout, const mf_settings *s, const int64_t *rows,
                       int count)
    void mf_grid_rows(mf_grid_update *u, const mf_grid_rollout *rollout, const mf_settings *s, int slot)
    double mf_grid_count(const mf_grid_update *u, double *sums)
    void mf_grid_drop(mf_grid_update *u)
    void mf_grid_sum(mf_grid_update *u, int slot)
    float mf_grid_norm(const mf_grid_update *u, double *sums)
    void mf_grid_step(mf_grid_update *u, const mf_adam *adam, int slot)
    float mf_shrink(const mf_settings *s, float norm)
    mf_adam mf_adam_at(const mf_settings *s, double step, float shrink)


cdef class Minibatch:
    """A network's copies of weights and every slot's memory. The calls of a minibatch, in their order:

    begin; rows of each slot; count; then drop, or sum of each slot; norm; step of each slot.
    """

    cdef mf_grid_update *u
    cdef mf_grid_rollout rollout
    cdef mf_settings settings
    cdef mf_adam adam

    def __cinit__(self, int layout, uintptr_t scale, int hidden, nvec, sizes, int slots, int most):
        """scale: float32 [256]; nvec: of the heads; sizes: of the six tensors; most: rows of a minibatch."""
        cdef mf_grid_net net
        cdef long[MF_TENSORS] numbers
        if not 0 < len(nvec) <= MF_MOST_HEADS or len(sizes) != MF_TENSORS:
            raise ValueError(f"{len(nvec)} heads and {len(sizes)} tensors, expected 1 to {MF_MOST_HEADS} and {MF_TENSORS}")
        net.layout, net.hidden, net.heads = layout, hidden, len(nvec)
        net.scale, net.outputs = <const float *>scale, sum(nvec) + 1
        for i, choices in enumerate(nvec):
            net.nvec[i] = choices
        for i, size in enumerate(sizes):
            numbers[i] = size
        self.u = mf_grid_update_new(&net, numbers, slots, most)
        if self.u == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.u != NULL:
            mf_grid_update_free(self.u)

    def tensors(self, addresses):
        """addresses: (weight, first moment, second moment) of each layer's weight and bias."""
        for i, (weight, first, second) in enumerate(addresses):
            self.u.tensor[i].weight = <float *><uintptr_t>weight
            self.u.tensor[i].first = <float *><uintptr_t>first
            self.u.tensor[i].second = <float *><uintptr_t>second
        self.u.net.w1, self.u.net.b1 = self.u.tensor[0].weight, self.u.tensor[1].weight
        self.u.net.w2, self.u.net.b2 = self.u.tensor[2].weight, self.u.tensor[3].weight
        self.u.net.w3, self.u.net.b3 = self.u.tensor[4].weight, self.u.tensor[5].weight

    def arrays(self, uintptr_t obs, uintptr_t action, uintptr_t logprob, uintptr_t value, uintptr_t advantage,
               uintptr_t returns, uintptr_t mask):
        """The rollout's."""
        self.rollout.obs = <const uint8_t *>obs
        self.rollout.action = <const int32_t *>action
        self.rollout.rows.logprob = <const float *>logprob
        self.rollout.rows.value = <const float *>value
        self.rollout.rows.advantage = <const float *>advantage
        self.rollout.rows.returns = <const float *>returns
        self.rollout.rows.mask = <const uint8_t *>mask

    def begin(self, dict settings, uintptr_t rows, int count):
        """settings by the fields' names; rows: int64 [count], numbers of the minibatch's rows."""
        self.settings = settings
        with nogil:
            mf_grid_begin(self.u, &self.rollout, &self.settings, <const int64_t *>rows, count)

    def rows(self, int lo, int hi):
        """Slots [lo, hi): gradients and statistics of their rows."""
        cdef int slot
        with nogil:
            for slot in range(lo, hi):
                mf_grid_rows(self.u, &self.rollout, &self.settings, slot)

    def count(self, double[::1] sums):
        """Add the minibatch's statistics to step.SUMS; its KL."""
        if sums.shape[0] != MF_SUMS:
            raise ValueError(f"sums has {sums.shape[0]} entries, not {MF_SUMS}")
        return mf_grid_count(self.u, &sums[0])

    def drop(self):
        """The minibatch takes no step."""
        mf_grid_drop(self.u)

    def sum(self, int lo, int hi):
        """Slots [lo, hi): their shares of the gradients added up."""
        cdef int slot
        with nogil:
            for slot in range(lo, hi):
                mf_grid_sum(self.u, slot)

    def norm(self, double step, double[::1] sums):
        """Count step number `step` and its gradient's norm."""
        self.adam = mf_adam_at(&self.settings, step, mf_shrink(&self.settings, mf_grid_norm(self.u, &sums[0])))

    def step(self, int lo, int hi):
        """Slots [lo, hi): their shares of the weights take the step."""
        cdef int slot
        with nogil:
            for slot in range(lo, hi):
                mf_grid_step(self.u, &self.adam, slot)


MOST_HEADS = MF_MOST_HEADS
