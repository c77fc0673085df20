/* wide_product.h: matrix products of wide layers (hundreds of units) on one core, near its peak.
 *
 * The second factor is packed: panels of MF_PANEL columns (the last narrower), each [inner, width] without gaps, so that
 * it streams from the cache. Each result is one sum over `inner` in its order, whatever the vectors' width.
 *
 * Include it once for each instruction set, with MF_T(name) giving names of its own, MF_TARGET the functions' attributes
 * and MF_LANES the floats of a vector; no guard.
 */
typedef float MF_T(vec) __attribute__((vector_size(4 * MF_LANES)));
typedef float MF_T(uvec) __attribute__((vector_size(4 * MF_LANES), aligned(4), may_alias));

#undef MF_PANEL
#undef MF_ROWS
#undef MF_UP
#define MF_PANEL (3 * MF_LANES)
#if MF_LANES == 16
#define MF_ROWS 8 /* 24 of 32 registers hold sums */
#else
#define MF_ROWS 4
#endif
#define MF_UP(n) (((n) + MF_LANES - 1) / MF_LANES * MF_LANES)

/* c [MF_ROWS, NV vectors] = A·b + bias. Entry (i, k) of A is a[i·ai + k·ak]; b [inner, ·] with rows ldb apart; bias [·], or
 * NULL. */
MF_TARGET static inline __attribute__((always_inline)) void MF_T(block)(const int NV, int inner, const float *a, long ai,
                                                                       long ak, const float *b, long ldb,
                                                                       const float *bias, float *c, long ldc)
{
    MF_T(vec) sum[MF_ROWS][3];
#pragma GCC unroll 8
    for (int i = 0; i < MF_ROWS; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            sum[i][j] = bias ? (MF_T(vec))(*(const MF_T(uvec) *)(bias + j * MF_LANES)) : (MF_T(vec)){0};
    for (int k = 0; k < inner; k++) {
        MF_T(vec) row[3];
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            row[j] = *(const MF_T(uvec) *)(b + k * ldb + j * MF_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < MF_ROWS; i++)
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                sum[i][j] += a[i * ai + k * ak] * row[j];
    }
#pragma GCC unroll 8
    for (int i = 0; i < MF_ROWS; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            *(MF_T(uvec) *)(c + i * ldc + j * MF_LANES) = sum[i][j];
}

/* The same with `width` columns: 1 to 3 vectors. */
MF_TARGET static __attribute__((noinline)) void MF_T(columns)(int width, int inner, const float *a, long ai, long ak,
                                                             const float *b, long ldb, const float *bias, float *c,
                                                             long ldc)
{
    if (width == 3 * MF_LANES)
        MF_T(block)(3, inner, a, ai, ak, b, ldb, bias, c, ldc);
    else if (width == 2 * MF_LANES)
        MF_T(block)(2, inner, a, ai, ak, b, ldb, bias, c, ldc);
    else
        MF_T(block)(1, inner, a, ai, ak, b, ldb, bias, c, ldc);
}

/* The width of the panel that begins at column `first` of `columns`. */
static inline int MF_T(width)(int columns, int first)
{
    const int left = MF_UP(columns) - first;
    return left < MF_PANEL ? left : MF_PANEL;
}

/* c [rows, MF_UP(columns)] = a [rows, inner] · b, packed [inner, columns], + bias [MF_UP(columns)] or NULL; rows a multiple
 * of MF_ROWS. */
MF_TARGET static void MF_T(product)(int rows, int columns, int inner, const float *a, long lda, const float *b,
                                    const float *bias, float *c, long ldc)
{
    for (int j = 0; j < columns; j += MF_PANEL) {
        const int width = MF_T(width)(columns, j);
        for (int i = 0; i < rows; i += MF_ROWS)
            MF_T(columns)(width, inner, a + i * lda, lda, 1, b + (long)j * inner, width, bias ? bias + j : 0,
                          c + i * ldc + j, ldc);
    }
}
