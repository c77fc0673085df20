"""Advantages on the CPU: backwards through time, every row one vectorised loop over the agents.

The formula stands in the package's docstring (metta_fast/algorithms/ppo/advantage/__init__.py).
"""

from libc.stdint cimport uint8_t

cdef extern from "advantage.h" nogil:
    void mf_advantage_row(const float *value, const float *next_value, const float *reward, const uint8_t *terminal,
                          const uint8_t *truncation, const uint8_t *mask, const float *ratio,
                          const float *bootstrap, const float *next_advantage, float *advantage, float *returns, Py_ssize_t agents,
                          float gamma, float gae_lambda, float rho_clip, float c_clip, int has_final_obs)


def advantage_cpu(inputs, float[:, ::1] advantage, float[:, ::1] returns):
    """Write `advantage` and `returns` [T, N] float32, without the GIL.

    Args:
        inputs: inputs.Inputs of NumPy arrays.

    Raises:
        ValueError: a wrong shape, dtype or layout.
    """
    cdef const float[:, ::1] value = inputs.value, reward = inputs.reward
    cdef const uint8_t[:, ::1] end = inputs.terminal.view("uint8"), cut = inputs.truncation.view("uint8")
    cdef const uint8_t[:, ::1] taken = inputs.mask.view("uint8")
    cdef const float[:, ::1] importance = inputs.ratio, final = inputs.bootstrap
    cdef float gamma = inputs.gamma, gae_lambda = inputs.gae_lambda
    cdef float rho_clip = inputs.rho_clip, c_clip = inputs.c_clip
    cdef bint has_final_obs = inputs.has_final_obs
    cdef Py_ssize_t horizon = reward.shape[0], agents = reward.shape[1], t
    cdef const float *rho = NULL
    cdef const float *last = NULL
    cdef float *following = NULL
    cdef bint weighted = inputs.ratio is not None, given = inputs.bootstrap is not None
    rows = {"value": (value, horizon + 1), "terminal": (end, horizon), "truncation": (cut, horizon),
            "ratio": (importance if weighted else reward, horizon),
            "bootstrap": (final if given else reward, horizon), "advantage": (advantage, horizon),
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
            if given:
                last = &final[t, 0]
            mf_advantage_row(&value[t, 0], &value[t + 1, 0], &reward[t, 0], &end[t, 0], &cut[t, 0], &taken[t, 0], rho,
                             last, following, &advantage[t, 0], &returns[t, 0], agents, gamma, gae_lambda, rho_clip,
                             c_clip, has_final_obs)
            following = &advantage[t, 0]
