"""Advantages on the CPU: backwards through time, every row one vectorised loop over the agents.

The formula stands in the package's docstring (metta_fast/algorithms/ppo/advantage/__init__.py).
"""

from libc.stdint cimport uint8_t

cdef extern from "advantage.h" nogil:
    void mf_advantage_row(const float *value, const float *next_value, const float *reward, const uint8_t *terminal,
                          const uint8_t *truncation, const uint8_t *mask, const float *ratio,
                          const float *next_advantage, float *advantage, float *returns, Py_ssize_t agents,
                          float gamma, float gae_lambda, float rho_clip, float c_clip, int has_final_obs)


def advantage_cpu(const float[:, ::1] value, const float[:, ::1] reward, terminal, truncation, mask, ratio,
                  float[:, ::1] advantage, float[:, ::1] returns, float gamma, float gae_lambda,
                  float rho_clip, float c_clip, bint has_final_obs):
    """Write `advantage` and `returns` [T, N] float32, without the GIL.

    Args:
        value: [T+1, N] float32. reward: [T, N] float32. terminal, truncation: [T, N] bool. mask: [T, N] or
            [T+1, N] bool. ratio: [T, N] float32, or None for GAE. All C-contiguous.

    Raises:
        ValueError: a wrong shape, dtype or layout.
    """
    cdef Py_ssize_t horizon = reward.shape[0], agents = reward.shape[1], t
    cdef const uint8_t[:, ::1] end = terminal.view("uint8"), cut = truncation.view("uint8")
    cdef const uint8_t[:, ::1] taken = mask.view("uint8")
    cdef const float[:, ::1] importance = ratio
    cdef const float *rho = NULL
    cdef float *following = NULL
    cdef bint weighted = ratio is not None
    rows = {"value": (value, horizon + 1), "terminal": (end, horizon), "truncation": (cut, horizon),
            "ratio": (reward if ratio is None else importance, horizon), "advantage": (advantage, horizon),
            "returns": (returns, horizon), "mask": (taken, max(horizon, min(taken.shape[0], horizon + 1)))}
    for name, (array, length) in rows.items():
        if tuple(array.shape)[:2] != (length, agents):
            raise ValueError(f"{name} has shape {list(array.shape)[:2]}, expected [{length}, {agents}]")
    if horizon == 0 or agents == 0:
        return
    with nogil:
        for t in range(horizon - 1, -1, -1):
            if weighted:
                rho = &importance[t, 0]
            mf_advantage_row(&value[t, 0], &value[t + 1, 0], &reward[t, 0], &end[t, 0], &cut[t, 0], &taken[t, 0], rho,
                             following, &advantage[t, 0], &returns[t, 0], agents, gamma, gae_lambda, rho_clip,
                             c_clip, has_final_obs)
            following = &advantage[t, 0]
