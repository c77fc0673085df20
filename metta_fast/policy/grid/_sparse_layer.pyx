"""The sparse first layer on the CPU (sparse_layer.h): parts of it, without the GIL, for threads to share.

Called by sparse_layer.py, which checks shapes. Pointers are addresses of contiguous arrays:
obs uint8 [rows, bytes], scale float32 [256], weight [columns, width], bias [width], out and grad [rows, width].
"""

from libc.stdint cimport int32_t, uint8_t, uintptr_t

cdef extern from "sparse_layer.h" nogil:
    void mf_layer_forward(int32_t layout, const uint8_t *obs, const float *scale, const float *weight,
                          const float *bias, float *out, Py_ssize_t width, Py_ssize_t lo, Py_ssize_t hi)
    void mf_layer_backward(int32_t layout, const uint8_t *obs, const float *scale, const float *grad,
                           float *grad_weight, Py_ssize_t rows, Py_ssize_t width, Py_ssize_t lo, Py_ssize_t hi)


def forward(int32_t layout, uintptr_t obs, uintptr_t scale, uintptr_t weight, uintptr_t bias, uintptr_t out,
            Py_ssize_t width, Py_ssize_t lo, Py_ssize_t hi):
    """Rows [lo, hi) of `out`."""
    with nogil:
        mf_layer_forward(layout, <const uint8_t *>obs, <const float *>scale, <const float *>weight,
                         <const float *>bias, <float *>out, width, lo, hi)


def backward(int32_t layout, uintptr_t obs, uintptr_t scale, uintptr_t grad, uintptr_t grad_weight,
             Py_ssize_t rows, Py_ssize_t width, Py_ssize_t lo, Py_ssize_t hi):
    """Add to columns [lo, hi) of `grad_weight`, over all rows."""
    with nogil:
        mf_layer_backward(layout, <const uint8_t *>obs, <const float *>scale, <const float *>grad,
                          <float *>grad_weight, rows, width, lo, hi)
