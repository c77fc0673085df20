/* scan.h: minGRU's recurrence over rows on the CPU, forward and backward, in float32 (see scan.py).

       z, p, c: the gates' parts, z and p through the sigmoid
       h = before + z (c - before),  y = x + p (h - x)          before: the last row's h, or 0 where reset

   Arrays are contiguous [rows, agents, size]; gates have 3 * size. A call takes the agents [lo, hi) through all
   rows, row by row, so that memory is read in its order; nonlinearities are computed eight at a time. */
#ifndef MF_SCAN_H
#define MF_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MF_WIDE = 8 };
typedef float mf_wide __attribute__((vector_size(32)));
typedef int32_t mf_wide_int __attribute__((vector_size(32)));

/* x, or ±top beyond it; not a number stays so. */
static inline mf_wide mf_within(mf_wide x, float top) {
    const mf_wide most = top - (mf_wide){0};
    const mf_wide_int over = x > most, under = x < -most;
    return (mf_wide)(((mf_wide_int)x & ~over & ~under) | ((mf_wide_int)most & over) | ((mf_wide_int)-most & under));
}

/* exp(x) to 2 ulp: 2^n exp(r) with |r| <= ln2 / 2, exp(r) by its series; x is held within ±87. */
static inline mf_wide mf_exp(mf_wide x) {
    x = mf_within(x, 87.0f);
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    const mf_wide shifted = x * 1.44269504f + round;
    const mf_wide n = shifted - round;
    const mf_wide r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    const mf_wide series =
        1.0f + r * (1.0f + r * (0.5f + r * (1.6666667e-1f + 
                r * (4.1666667e-2f + r * (8.3333333e-3f + r * 1.3888889e-3f)))));
    const mf_wide_int power = ((mf_wide_int)shifted << 23) + (127 << 23);
    return series * (mf_wide)power;
}

static inline mf_wide mf_sigmoid(mf_wide x) { return 1.0f / (1.0f + mf_exp(-x)); }

/* The n <= 8 numbers at `from`, or zeros without it; lanes past n are 0. */
static inline mf_wide mf_load(const float *from, ptrdiff_t n) {
    mf_wide x = {0};
    if (from)
        memcpy(&x, from, n == MF_WIDE ? sizeof x : sizeof(float) * (size_t)n);
    return x;
}

static inline void mf_store(float *to, mf_wide x, ptrdiff_t n) {
    memcpy(to, &x, n == MF_WIDE ? sizeof x : sizeof(float) * (size_t)n);
}

/* y, the state after each row (states, unless null) and after the last (last [agents, size]). */
static inline void mf_scan_forward(const float *gates, const float *x, const float *state, const uint8_t *reset,
                                   float *y, float *last, float *states, ptrdiff_t rows, ptrdiff_t agents,
                                   ptrdiff_t size, ptrdiff_t lo, ptrdiff_t hi) {
    for (ptrdiff_t t = 0; t < rows; t++)
        for (ptrdiff_t b = lo; b < hi; b++) {
            const ptrdiff_t row = t * agents + b, at = row * size;
            const float *before = reset[row] ? NULL : (t ? last : state) + b * size;
            for (ptrdiff_t f = 0; f < size; f += MF_WIDE) {
                const ptrdiff_t n = size - f < MF_WIDE ? size - f : MF_WIDE;
                const float *gate = gates + 3 * at + f;
                const mf_wide z = mf_sigmoid(mf_load(gate, n)), p = mf_sigmoid(mf_load(gate + size, n));
                const mf_wide c = mf_load(gate + 2 * size, n), skip = mf_load(x + at + f, n);
                mf_wide h = mf_load(before ? before + f : NULL, n);
                h += z * (c - h);
                mf_store(last + b * size + f, h, n);
                mf_store(y + at + f, skip + p * (h - skip), n);
                if (states)
                    mf_store(states + at + f, h, n);
            }
        }
}

/* Gradients of gates, x and state from dy, that of y, and from grad_state, which holds that of the last state. */
static inline void mf_scan_backward(const float *gates, const float *x, const float *state, const uint8_t *reset,
                                    const float *states, const float *dy, float *grad_gates, float *grad_x,
                                    float *grad_state, ptrdiff_t rows, ptrdiff_t agents, ptrdiff_t size,
                                    ptrdiff_t lo, ptrdiff_t hi) {
    for (ptrdiff_t t = rows - 1; t >= 0; t--)
        for (ptrdiff_t b = lo; b < hi; b++) {
            const ptrdiff_t row = t * agents + b, at = row * size;
            const float *past = reset[row] ? NULL : t ? states + at - agents * size : state + b * size;
            for (ptrdiff_t f = 0; f < size; f += MF_WIDE) {
                const ptrdiff_t n = size - f < MF_WIDE ? size - f : MF_WIDE;
                const float *gate = gates + 3 * at + f;
                float *into = grad_gates + 3 * at + f, *back = grad_state + b * size + f;
                const mf_wide z = mf_sigmoid(mf_load(gate, n)), p = mf_sigmoid(mf_load(gate + size, n));
                const mf_wide c = mf_load(gate + 2 * size, n), skip = mf_load(x + at + f, n);
                const mf_wide before = mf_load(past ? past + f : NULL, n), h = mf_load(states + at + f, n);
                const mf_wide d = mf_load(dy + at + f, n), dh = d * p + mf_load(back, n);
                mf_store(into, dh * (c - before) * (z * (1.0f - z)), n);
                mf_store(into + size, d * (h - skip) * (p * (1.0f - p)), n);
                mf_store(into + 2 * size, dh * z, n);
                mf_store(grad_x + at + f, d * (1.0f - p), n);
                mf_store(back, past ? dh * (1.0f - z) : (mf_wide){0}, n);
            }
        }
}

#endif
