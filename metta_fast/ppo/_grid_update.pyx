"""A pass of PPO's update for a grid policy on the CPU (grid_update.h), without the GIL.

Called by grid_update.py, which checks what it is given. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from metta_fast.errors import no_threads

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
    ctypedef struct mf_team:
        pass
    ctypedef struct mf_grid_update:
        mf_grid_net net
        mf_team team
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
    mf_grid_update *mf_grid_update_new(const mf_grid_net *net, const long *sizes, int slots, int64_t spin_ns, int most)
    void mf_grid_update_free(mf_grid_update *u)
    int mf_team_start(mf_team *team)
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
        if not 0 < len(nvec) <= MF_MOST_HEADS or len(sizes) != MF_TENSORS:
            raise ValueError(f"{len(nvec)} heads and {len(sizes)} tensors, expected 1 to {MF_MOST_HEADS} and {MF_TENSORS}")
        net.layout, net.hidden, net.heads = layout, hidden, len(nvec)
        net.scale, net.outputs = <const float *>scale, sum(nvec) + 1
        for i, choices in enumerate(nvec):
            net.nvec[i] = choices
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

    def run(self, uintptr_t rows, long total, int each, double step, dict settings, double[::1] sums):
        """`mf_grid_pass`; settings by the fields' names."""
        cdef mf_settings s = settings
        cdef int whole
        if sums.shape[0] != MF_SUMS:
            raise ValueError(f"sums has {sums.shape[0]} entries, not {MF_SUMS}")
        with nogil:
            whole = mf_grid_pass(self.u, &self.rollout, &s, <const int64_t *>rows, total, each, step, &sums[0])
        return bool(whole)
