"""minGRU's recurrence on the CPU (scan.h): some agents' part of it, without the GIL, for threads to share.

Called by scan.py, which checks shapes. Pointers are addresses of contiguous arrays: gates [rows, agents, 3 size],
x, y, states [rows, agents, size] and state [agents, size] float32, reset [rows, agents] of bytes.
"""

from libc.stdint cimport uint8_t, uintptr_t

cdef extern from "scan.h" nogil:
    void mf_scan_forward(const float *gates, const float *x, const float *state, const uint8_t *reset, float *y,
                         float *last, float *states, Py_ssize_t rows, Py_ssize_t agents, Py_ssize_t size,
                         Py_ssize_t lo, Py_ssize_t hi)
    void mf_scan_backward(const float *gates, const float *x, const float *state, const uint8_t *reset,
                          const float *states, const float *dy, float *grad_gates, float *grad_x,
                          float *grad_state, Py_ssize_t rows, Py_ssize_t agents, Py_ssize_t size,
                          Py_ssize_t lo, Py_ssize_t hi)


def forward(uintptr_t gates, uintptr_t x, uintptr_t state, uintptr_t reset, uintptr_t y, uintptr_t last,
            uintptr_t states, Py_ssize_t rows, Py_ssize_t agents, Py_ssize_t size, Py_ssize_t lo, Py_ssize_t hi):
    """Agents [lo, hi) of y, last and states (0: not wanted)."""
    with nogil:
        mf_scan_forward(<const float *>gates, <const float *>x, <const float *>state, <const uint8_t *>reset,
                        <float *>y, <float *>last, <float *>states, rows, agents, size, lo, hi)


def backward(uintptr_t gates, uintptr_t x, uintptr_t state, uintptr_t reset, uintptr_t states, uintptr_t dy,
             uintptr_t grad_gates, uintptr_t grad_x, uintptr_t grad_state, Py_ssize_t rows, Py_ssize_t agents,
             Py_ssize_t size, Py_ssize_t lo, Py_ssize_t hi):
    """Agents [lo, hi) of the gradients; grad_state holds that of the last state before."""
    with nogil:
        mf_scan_backward(<const float *>gates, <const float *>x, <const float *>state, <const uint8_t *>reset,
                         <const float *>states, <const float *>dy, <float *>grad_gates, <float *>grad_x,
                         <float *>grad_state, rows, agents, size, lo, hi)
