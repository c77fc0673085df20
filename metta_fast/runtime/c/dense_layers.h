/* dense_layers.h: computes dense layers of small networks on one core: matrix products, activations, gradients.
 *
 * Matrices are row-major float32. The number of columns of a product's second factor and of its result is a
 * multiple of 8 (padded with zeros). It avoids torch's overhead per operator, which for such layers is as large as
 * the arithmetic itself.
 */
#ifndef MF_CPU_DENSE_H
#define MF_CPU_DENSE_H

#include <stdint.h>
#include <string.h>

#define MF_INLINE static inline __attribute__((always_inline))

typedef float mf_v8 __attribute__((vector_size(32)));
typedef float mf_u8 __attribute__((vector_size(32), aligned(4), may_alias));

enum { MF_RELU, MF_TANH, MF_ELU };

/* C[0:MR, 0:8·NV] = A·B + from. Entry (i, k) of A is a[i·ai + k·ak]; row i of `from` (NULL: zeros) is from + i·ldf. */
MF_INLINE void mf_block(const int MR, const int NV, int inner, const float *a, long ai, long ak, const float *b,
                        long ldb, const float *from, long ldf, float *c, long ldc)
{
    mf_v8 sum[4][3];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            sum[i][j] = from ? (mf_v8)(*(const mf_u8 *)(from + i * ldf + 8 * j)) : (mf_v8){0};
    for (int k = 0; k < inner; k++) {
        mf_v8 row[3];
        for (int j = 0; j < NV; j++)
            row[j] = *(const mf_u8 *)(b + k * ldb + 8 * j);
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++)
                sum[i][j] += a[i * ai + k * ak] * row[j];
    }
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            *(mf_u8 *)(c + i * ldc + 8 * j) = sum[i][j];
}

/* Applies `mf_block` to any number of rows. */
MF_INLINE void mf_strip(const int NV, int rows, int inner, const float *a, long ai, long ak, const float *b, long ldb,
                        const float *from, long ldf, float *c, long ldc)
{
    for (; rows >= 4; rows -= 4, a += 4 * ai, c += 4 * ldc, from = from ? from + 4 * ldf : 0)
        mf_block(4, NV, inner, a, ai, ak, b, ldb, from, ldf, c, ldc);
    if (rows == 3)
        mf_block(3, NV, inner, a, ai, ak, b, ldb, from, ldf, c, ldc);
    else if (rows == 2)
        mf_block(2, NV, inner, a, ai, ak, b, ldb, from, ldf, c, ldc);
    else if (rows)
        mf_block(1, NV, inner, a, ai, ak, b, ldb, from, ldf, c, ldc);
}

/* c [rows, columns] = A [rows, inner] · b [inner, columns] + from, a matrix or (ldf 0) one row; columns % 8 == 0.
 * Strips of 24 columns are fastest with AVX2; the split avoids a last strip of 8, the slowest width. */
static void mf_product_from(int rows, int columns, int inner, const float *a, long ai, long ak, const float *b,
                            long ldb, const float *from, long ldf, float *c, long ldc)
{
    for (int j = 0; j < columns;) {
        const int left = (columns - j) / 8, wide = left == 2 || left == 4 ? 2 : left < 3 ? 1 : 3;
        const float *f = from ? from + j : 0;
        if (wide == 3)
            mf_strip(3, rows, inner, a, ai, ak, b + j, ldb, f, ldf, c + j, ldc);
        else if (wide == 2)
            mf_strip(2, rows, inner, a, ai, ak, b + j, ldb, f, ldf, c + j, ldc);
        else
            mf_strip(1, rows, inner, a, ai, ak, b + j, ldb, f, ldf, c + j, ldc);
        j += 8 * wide;
    }
}

/* c = A·b (+ bias [columns], or NULL) */
MF_INLINE void mf_product(int rows, int columns, int inner, const float *a, long ai, long ak, const float *b, long ldb,
                          const float *bias, float *c, long ldc)
{
    mf_product_from(rows, columns, inner, a, ai, ak, b, ldb, bias, 0, c, ldc);
}

/* c += A·b */
MF_INLINE void mf_product_add(int rows, int columns, int inner, const float *a, long ai, long ak, const float *b,
                              long ldb, float *c, long ldc)
{
    mf_product_from(rows, columns, inner, a, ai, ak, b, ldb, c, ldc, c, ldc);
}

/* Returns e^x for x <= 0 with an error of 1e-7; without branches, so that loops are vectorised. */
MF_INLINE float mf_exp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    const float turns = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounds: 1.5 · 2^23 */
    const float r = (x - turns * 0.693359375f) + turns * 2.12194440e-4f;
    const float e = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r / 720)))));
    const int32_t bits = ((int32_t)turns + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return e * power;
}

/* Applies an activation to x [n] in place. */
static inline void mf_activate(int kind, float *x, long n)
{
    if (kind == MF_TANH)
        for (long i = 0; i < n; i++) {
            const float size = x[i] < 0 ? -x[i] : x[i], e = mf_exp(-2.0f * size), y = (1.0f - e) / (1.0f + e);
            x[i] = x[i] != x[i] ? x[i] : x[i] < 0 ? -y : y; /* NaN is kept, so that it is found */
        }
    else if (kind == MF_RELU)
        for (long i = 0; i < n; i++)
            x[i] = x[i] < 0 ? 0.0f : x[i];
    else
        for (long i = 0; i < n; i++)
            x[i] = x[i] < 0 ? mf_exp(x[i]) - 1.0f : x[i];
}

/* Turns gradients [n] of an activation's output y into those of its input, in place. */
static inline void mf_activate_gradient(int kind, const float *y, float *grad, long n)
{
    if (kind == MF_TANH)
        for (long i = 0; i < n; i++)
            grad[i] *= 1.0f - y[i] * y[i];
    else if (kind == MF_RELU)
        for (long i = 0; i < n; i++)
            grad[i] = y[i] > 0 ? grad[i] : 0.0f;
    else
        for (long i = 0; i < n; i++)
            grad[i] *= y[i] > 0 ? 1.0f : y[i] + 1.0f;
}

/* Adds the column sums of x [rows, ld] to sums [columns]. */
static inline void mf_add_columns(const float *x, int rows, int columns, long ld, float *sums)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            sums[j] += x[i * ld + j];
}

/* Sets sums [columns] to the column sums of x [rows, columns]. */
MF_INLINE void mf_column_sums(const float *x, int rows, int columns, float *sums)
{
    memset(sums, 0, sizeof(float) * columns);
    mf_add_columns(x, rows, columns, columns, sums);
}

#endif
