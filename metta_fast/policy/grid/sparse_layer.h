/* sparse_layer.h: a wide linear layer over inputs that are nearly all zero, forward and backward.

       out[r] = bias + Σ over row r's pairs of value * weight[column]          weight [columns, width] float32

   About 50 of some 3,000 inputs are not zero, so that this does a fiftieth of the arithmetic of a matrix product. */
#ifndef MF_SPARSE_LAYER_H
#define MF_SPARSE_LAYER_H

#include <stddef.h>
#include <string.h>

#include "layout.h"

typedef float mf_vec __attribute__((vector_size(32), aligned(4), may_alias));
enum { MF_LANES = 8, MF_VECS = 8, MF_STRIP = MF_LANES * MF_VECS }; /* a strip: outputs held in registers */

typedef void (*mf_decoder)(mf_pairs *, const uint8_t *, const float *);

static inline mf_decoder mf_layout(int32_t layout, ptrdiff_t *bytes) {
    switch (layout) {
    case 0: *bytes = MF_COMPACT_BYTES; return mf_decode_compact;
    case 1: *bytes = MF_DENSE_BYTES; return mf_decode_dense;
    default: *bytes = MF_TOKEN_BYTES; return mf_decode_tokens;
    }
}

#define MF_STRIP_OF static inline __attribute__((always_inline)) void

/* 8·vecs numbers of out = bias + Σ value[i] * weight[column[i]] over `count` pairs; all three begin at the strip. */
MF_STRIP_OF mf_gather_strip(const int vecs, int32_t count, const int32_t *column, const float *values,
                            const float *weight, const float *bias, float *out, ptrdiff_t width) {
    mf_vec sum[MF_VECS];
    for (int v = 0; v < vecs; v++)
        sum[v] = ((const mf_vec *)bias)[v];
    for (int32_t i = 0; i < count; i++) {
        const mf_vec *row = (const mf_vec *)(weight + column[i] * width);
        const float value = values[i];
        for (int v = 0; v < vecs; v++)
            sum[v] += value * row[v];
    }
    for (int v = 0; v < vecs; v++)
        ((mf_vec *)out)[v] = sum[v];
}

/* out [width] = bias + Σ value[i] * weight[column[i]] over `count` pairs */
static inline void mf_gather(int32_t count, const int32_t *column, const float *values, const float *weight,
                             const float *bias, float *out, ptrdiff_t width) {
    ptrdiff_t h = 0;
    for (; h + MF_STRIP <= width; h += MF_STRIP)
        mf_gather_strip(MF_VECS, count, column, values, weight + h, bias + h, out + h, width);
    for (; h + MF_STRIP / 2 <= width; h += MF_STRIP / 2)
        mf_gather_strip(MF_VECS / 2, count, column, values, weight + h, bias + h, out + h, width);
    for (; h + MF_LANES <= width; h += MF_LANES)
        mf_gather_strip(1, count, column, values, weight + h, bias + h, out + h, width);
    if (h == width)
        return;
    memcpy(out + h, bias + h, sizeof(float) * (size_t)(width - h));
    for (int32_t i = 0; i < count; i++)
        for (ptrdiff_t k = h; k < width; k++)
            out[k] += values[i] * weight[column[i] * width + k];
}

/* 8·vecs numbers of grad_weight[column[i]] += value[i] * grad for `count` pairs; both begin at the strip. */
MF_STRIP_OF mf_scatter_strip(const int vecs, int32_t count, const int32_t *column, const float *values,
                             float *grad_weight, const float *grad, ptrdiff_t width) {
    mf_vec g[MF_VECS];
    for (int v = 0; v < vecs; v++)
        g[v] = ((const mf_vec *)grad)[v];
    for (int32_t i = 0; i < count; i++) {
        mf_vec *row = (mf_vec *)(grad_weight + column[i] * width);
        const float value = values[i];
        for (int v = 0; v < vecs; v++)
            row[v] += value * g[v];
    }
}

/* grad_weight[column[i], lo:hi] += value[i] * grad[lo:hi] for `count` pairs */
static inline void mf_scatter(int32_t count, const int32_t *column, const float *values, float *grad_weight,
                              const float *grad, ptrdiff_t width, ptrdiff_t lo, ptrdiff_t hi) {
    ptrdiff_t h = lo;
    for (; h + MF_STRIP <= hi; h += MF_STRIP)
        mf_scatter_strip(MF_VECS, count, column, values, grad_weight + h, grad + h, width);
    for (; h + MF_STRIP / 2 <= hi; h += MF_STRIP / 2)
        mf_scatter_strip(MF_VECS / 2, count, column, values, grad_weight + h, grad + h, width);
    for (; h + MF_LANES <= hi; h += MF_LANES)
        mf_scatter_strip(1, count, column, values, grad_weight + h, grad + h, width);
    for (int32_t i = 0; i < count; i++)
        for (ptrdiff_t k = h; k < hi; k++)
            grad_weight[column[i] * width + k] += values[i] * grad[k];
}

/* Rows [lo, hi) of obs [rows, bytes] into out [rows, width]. */
static inline void mf_layer_forward(int32_t layout, const uint8_t *obs, const float *scale, const float *weight,
                                    const float *bias, float *out, ptrdiff_t width, ptrdiff_t lo, ptrdiff_t hi) {
    ptrdiff_t bytes;
    const mf_decoder decode = mf_layout(layout, &bytes);
    mf_pairs pairs;
    for (ptrdiff_t r = lo; r < hi; r++) {
        decode(&pairs, obs + r * bytes, scale);
        mf_gather(pairs.count, pairs.column, pairs.value, weight, bias, out + r * width, width);
    }
}

/* Add every row's share to columns [lo, hi) of grad_weight: threads cut the width, so that no two write one place. */
static inline void mf_layer_backward(int32_t layout, const uint8_t *obs, const float *scale, const float *grad,
                                     float *grad_weight, ptrdiff_t rows, ptrdiff_t width, ptrdiff_t lo,
                                     ptrdiff_t hi) {
    ptrdiff_t bytes;
    const mf_decoder decode = mf_layout(layout, &bytes);
    mf_pairs pairs;
    for (ptrdiff_t r = 0; r < rows; r++) {
        decode(&pairs, obs + r * bytes, scale);
        mf_scatter(pairs.count, pairs.column, pairs.value, grad_weight, grad + r * width, width, lo, hi);
    }
}

#endif
