"""cpu_ppo.h for Cython: what both updates in C are told."""

from libc.stdint cimport uint8_t, uintptr_t

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

cdef extern from * nogil:
    ctypedef struct mf_tensor:  # each update's header has its own, with these
        float *weight
        float *first
        float *second


cdef inline void point_tensor(mf_tensor *tensor, uintptr_t weight, uintptr_t first, uintptr_t second) noexcept:
    """A parameter and Adam's two moments of it."""
    tensor.weight, tensor.first, tensor.second = <float *>weight, <float *>first, <float *>second


cdef inline void point_rows(mf_rows *rows, uintptr_t logprob, uintptr_t value, uintptr_t advantage, uintptr_t returns,
                            uintptr_t mask) noexcept:
    """The rollout's arrays."""
    rows.logprob, rows.value = <const float *>logprob, <const float *>value
    rows.advantage, rows.returns = <const float *>advantage, <const float *>returns
    rows.mask = <const uint8_t *>mask
