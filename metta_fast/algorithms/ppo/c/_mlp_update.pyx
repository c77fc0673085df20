"""Runs a pass of PPO's update on the CPU (mlp_update.h), without the GIL.

Called by mlp_update.py, which checks the arguments. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from metta_fast.contracts.errors import no_threads

from metta_fast.policy.fused_act.mlp_network cimport mf_net, mf_team, mf_team_start, point_weights, set_nvec

cdef extern from "ppo_loss.h" nogil:
    enum: MF_SUMS
    ctypedef struct mf_rows:
        const float *logprob
        const float *value
        const float *advantage
        const float *returns
        const uint8_t *mask
    ctypedef struct mf_settings:
        float clip, vf_coef, vf_clip, entropy_coef, max_norm, target_kl
        double rate, beta1, beta2, epsilon
        int normalize_advantage

cdef extern from "mlp_update.h" nogil:
    enum: MF_TENSORS
    enum: MF_NETS
    enum: MF_MOST_LEAVES
    ctypedef struct mf_tensor:
        float *weight
        float *first
        float *second
    ctypedef struct mf_leaf:
        const float *rows
        const float *shift
        const float *scale
        int size
    ctypedef struct mf_view:
        mf_leaf *leaf
        int leaves
        const uint8_t *bytes
    ctypedef struct mf_rollout:
        mf_view *view
        mf_rows rows
        const int32_t *choice
        const float *action
    ctypedef struct mf_update:
        mf_net *net
        int nets, alike, heads, width, tensors, slots
        int *nvec
        mf_tensor *tensor
        mf_team team
    mf_update *mf_update_new(const mf_update *given, const int *columns, int64_t spin_ns, int most)
    void mf_update_free(mf_update *u)
    int mf_pass(mf_update *u, const mf_rollout *rollout, const mf_settings *s, const int64_t *rows, long total,
                int each, double step, double *sums)


MOST_LEAVES = MF_MOST_LEAVES


cdef class Networks:
    """Owns each thread's memory, the networks' copies of the weights, and the threads."""

    cdef mf_update *u
    cdef mf_rollout rollout

    def __cinit__(self, nets, bint alike, int hidden, int activation, uintptr_t scale, nvec, int width, int slots,
                  double spin_s, int most):
        """Allocates for one network or two.

        Args:
            nets: of each (layout or -1, columns of a sparse first layer or inputs of a dense one, outputs).
            alike: both read the same.
            scale: float32 [256], for a sparse first layer.
            nvec: of the heads; empty: continuous actions of `width` numbers.
            slots: threads, the caller one of them. spin_s: how long idle ones spin. most: rows of a minibatch.
        """
        cdef mf_update given
        cdef int[MF_NETS] columns
        if not 0 < len(nets) <= MF_NETS:
            raise ValueError(f"{len(nets)} networks, expected 1 or 2")
        given.nets, given.alike, given.slots = len(nets), alike, slots
        given.heads, given.width = set_nvec(given.nvec, nvec), width
        for k, (layout, inputs, outputs) in enumerate(nets):
            columns[k] = inputs
            given.net[k].layout, given.net[k].inputs = layout, 0 if layout >= 0 else inputs
            given.net[k].hidden, given.net[k].outputs, given.net[k].activation = hidden, outputs, activation
            given.net[k].scale = <const float *>scale
        self.u = mf_update_new(&given, columns, <int64_t>(spin_s * 1e9), most)
        if self.u == NULL:
            raise MemoryError
        error = mf_team_start(&self.u.team)
        if error:
            raise no_threads(slots - 1, error)

    def __dealloc__(self):
        if self.u != NULL:
            mf_update_free(self.u)

    def tensors(self, addresses):
        """Sets the addresses (weight, first moment, second moment): of log_std if actions are continuous, then of weight
        and bias of each network's layers."""
        if len(addresses) != self.u.tensors:
            raise ValueError(f"{len(addresses)} tensors, expected {self.u.tensors}")
        for i, (weight, first, second) in enumerate(addresses):
            self.u.tensor[i].weight = <float *><uintptr_t>weight
            self.u.tensor[i].first = <float *><uintptr_t>first
            self.u.tensor[i].second = <float *><uintptr_t>second
        begin = self.u.tensors - self.u.nets * MF_TENSORS
        for k in range(self.u.nets):
            point_weights(&self.u.net[k], [address[0] for address in addresses[begin:begin + MF_TENSORS]])
            begin += MF_TENSORS

    def bytes(self, int net, uintptr_t rows):
        """Sets what a network with a sparse first layer reads."""
        self.rollout.view[net].bytes = <const uint8_t *>rows

    def leaves(self, int net, given):
        """Sets what a dense first layer reads: [(rows, shift, scale, floats in a row), …]; shift and scale 0: as it is."""
        cdef mf_view *of = &self.rollout.view[net]
        if len(given) > MF_MOST_LEAVES:
            raise ValueError(f"{len(given)} leaves, expected at most {MF_MOST_LEAVES}")
        of.leaves = len(given)
        for i, (rows, shift, scale, size) in enumerate(given):
            of.leaf[i].rows = <const float *><uintptr_t>rows
            of.leaf[i].shift = <const float *><uintptr_t>shift
            of.leaf[i].scale = <const float *><uintptr_t>scale
            of.leaf[i].size = size

    def rows(self, uintptr_t action, uintptr_t logprob, uintptr_t value, uintptr_t advantage, uintptr_t returns,
             uintptr_t mask):
        """Sets the rollout's other arrays."""
        cdef mf_rows *rows = &self.rollout.rows
        self.rollout.choice, self.rollout.action = <const int32_t *>action, <const float *>action
        rows.logprob, rows.value = <const float *>logprob, <const float *>value
        rows.advantage, rows.returns = <const float *>advantage, <const float *>returns
        rows.mask = <const uint8_t *>mask

    def run(self, uintptr_t rows, long total, int each, double step, dict settings, double[::1] sums):
        """Runs `mf_pass`; settings by the fields' names."""
        cdef mf_settings s = settings
        cdef int whole
        if sums.shape[0] != MF_SUMS:
            raise ValueError(f"sums has {sums.shape[0]} entries, expected {MF_SUMS}")
        with nogil:
            whole = mf_pass(self.u, &self.rollout, &s, <const int64_t *>rows, total, each, step, &sums[0])
        return bool(whole)
