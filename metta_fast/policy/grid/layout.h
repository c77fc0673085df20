/* layout.h: decodes the grid's observations into the few non-zero inputs of a wide layer: (column, value) pairs.

   layout.py has the same decoding by torch operations, and what each column means; tests compare the two.
   Every byte is allowed: values that the grid never writes give no pair. `scale` is a table of log2(1 + n) / 2. */
#ifndef MF_GRID_LAYOUT_H
#define MF_GRID_LAYOUT_H

#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
    MF_CELLS = 121, MF_CENTRE = 60, MF_VIEW = 11, MF_KINDS = 15, MF_ACTIONS = 9,
    MF_COMPACT_CELL = 24, MF_COMPACT_OWN = MF_CELLS * MF_COMPACT_CELL, MF_COMPACT_BYTES = 387,
    MF_DENSE_CELL = 32, MF_DENSE_OWN = MF_CELLS * MF_DENSE_CELL, MF_DENSE_CHANNELS = 24,
    MF_DENSE_BYTES = MF_CELLS * MF_DENSE_CHANNELS, MF_TOKENS = 200, MF_TOKEN_BYTES = 3 * MF_TOKENS,
    MF_MAX_PAIRS = MF_DENSE_OWN + 64,
};

typedef struct {
    int32_t count;
    int32_t column[MF_MAX_PAIRS];
    float value[MF_MAX_PAIRS];
} mf_pairs;

static inline void mf_put(mf_pairs *p, int32_t column, float value) {
    p->column[p->count] = column;
    p->value[p->count++] = value;
}

static inline void mf_put_nonzero(mf_pairs *p, int32_t column, float value) {
    if (value != 0.0f)
        mf_put(p, column, value);
}

/* Columns 0–14 of a cell, its kind, and for agents 15–16, the direction faced (rows down, columns right). */
static inline void mf_put_kind(mf_pairs *p, int32_t base, uint8_t kind) {
    if (kind <= MF_KINDS)
        mf_put(p, base + kind - 1, 1.0f);
}

static inline void mf_put_facing(mf_pairs *p, int32_t base, uint8_t orientation) {
    if (orientation < 4)
        mf_put(p, base + 15 + (orientation >> 1), orientation & 1 ? 1.0f : -1.0f);
}

/* The pair is written at `n` in any case and counted where its value is not 0: no branch to guess wrong. */
static inline int32_t mf_put_at(mf_pairs *p, int32_t n, int32_t column, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    p->column[n] = column;
    p->value[n] = value;
    return n + (bits != 0);
}

/* Columns 15–23 of a compact cell: what an agent's or a converter's other two bytes say; the number of pairs then. */
static inline int32_t mf_compact_more(mf_pairs *p, int32_t n, int32_t base, const uint8_t *cell, const float *scale) {
    const uint8_t kind = cell[0], low = cell[2] & 15, high = cell[2] >> 4;
    if (kind == 1 && cell[1]) {
        const uint8_t bits = (uint8_t)(cell[1] - 1);
        n = mf_put_at(p, n, base + 15 + (bits >> 1 & 1), bits & 1 ? 1.0f : -1.0f);
        n = mf_put_at(p, n, base + 17, (float)(bits >> 2 & 1));
        n = mf_put_at(p, n, base + 18, (float)(bits >> 3 & 15) * (1.0f / 15.0f));
        n = mf_put_at(p, n, base + 19, scale[low]);
        n = mf_put_at(p, n, base + 20, scale[high]);
    } else if (kind >= 3 && kind <= 14) {
        n = mf_put_at(p, n, base + 21, cell[1] ? 1.0f : 0.0f);
        n = mf_put_at(p, n, base + 22, scale[low]);
        n = mf_put_at(p, n, base + 23, scale[high]);
    }
    return n;
}

/* Bit i: byte i of these 64 is not 0. */
static inline uint64_t mf_nonzero_bytes(const uint8_t *bytes) {
#ifdef __AVX2__
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)bytes), zero);
    const __m256i high = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(bytes + 32)), zero);
    return ~((uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32 | (uint32_t)_mm256_movemask_epi8(low));
#else
    uint64_t found = 0;
    for (int32_t i = 0; i < 8; i++) {
        uint64_t eight;
        memcpy(&eight, bytes + 8 * i, 8);
        eight = (((eight & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | eight) >> 7 & 0x0101010101010101u;
        found |= (eight * 0x0102040810204080u >> 56) << 8 * i; /* the bytes' lowest bits side by side */
    }
    return found;
#endif
}

enum { MF_STRIDE = 63 }; /* bytes that are searched for cells at once: 21 cells of 3 bytes */

static inline void mf_decode_compact(mf_pairs *p, const uint8_t *obs, const float *scale) {
    const uint8_t *own = obs + 3 * MF_CELLS;
    const int32_t base = MF_COMPACT_OWN;
    int32_t n = 0, more = 0, place[MF_CELLS];
    for (int32_t first = 0; first < 3 * MF_CELLS; first += MF_STRIDE) {
        uint64_t kinds = mf_nonzero_bytes(obs + first) & 0x1249249249249249u; /* every third byte */
        if (first + MF_STRIDE > 3 * MF_CELLS)
            kinds &= ((uint64_t)1 << (3 * MF_CELLS - first)) - 1;
        for (; kinds; kinds &= kinds - 1) {
            const int32_t at = first + __builtin_ctzll(kinds);
            p->column[n] = MF_COMPACT_CELL / 3 * at + obs[at] - 1;
            p->value[n] = 1.0f;
            n += obs[at] <= MF_KINDS;
            place[more] = at;
            more += obs[at] != 2 && obs[at] < MF_KINDS; /* a wall or a block carries nothing else */
        }
    }
    for (int32_t i = 0; i < more; i++)
        n = mf_compact_more(p, n, MF_COMPACT_CELL / 3 * place[i], obs + place[i], scale);
    for (int32_t i = 0; i < 10; i++)
        n = mf_put_at(p, n, base + i, scale[own[i]]);
    p->column[n] = base + 10 + own[10];
    p->value[n] = 1.0f;
    n += own[10] < 4;
    n = mf_put_at(p, n, base + 14, own[11] ? 1.0f : 0.0f);
    n = mf_put_at(p, n, base + 15, (float)own[11] * 0.1f);
    n = mf_put_at(p, n, base + 16, (float)own[12] * (1.0f / 15.0f));
    n = mf_put_at(p, n, base + 17, (float)own[13] * 0.125f);
    n = mf_put_at(p, n, base + 18, (float)own[14] * 0.125f);
    p->column[n] = base + 19 + own[15];
    p->value[n] = 1.0f;
    n += own[15] < MF_ACTIONS;
    n = mf_put_at(p, n, base + 28, (float)own[16] * 0.125f);
    n = mf_put_at(p, n, base + 29, scale[own[17]]);
    n = mf_put_at(p, n, base + 30, (float)own[18] * (1.0f / 255.0f));
    for (int32_t bit = 0; bit < 8; bit++)
        n = mf_put_at(p, n, base + 31 + bit, (float)(own[19] >> bit & 1));
    p->column[n] = own[20] ? base + 39 + own[20] - 1 : base + 63;
    p->value[n] = 1.0f;
    n += own[20] <= MF_KINDS;
    p->count = mf_compact_more(p, n, base + 39, own + 20, scale);
}

static inline void mf_decode_dense(mf_pairs *p, const uint8_t *obs, const float *scale) {
    const uint8_t *own = obs + MF_CENTRE * MF_DENSE_CHANNELS;
    const int32_t last = MF_DENSE_OWN;
    p->count = 0;
    for (int32_t i = 0; i < MF_CELLS; i++) {
        const uint8_t *cell = obs + i * MF_DENSE_CHANNELS;
        const int32_t base = i * MF_DENSE_CELL;
        if (!cell[0])
            continue;
        mf_put_kind(p, base, cell[0]);
        if (cell[0] == 2) /* a wall carries nothing else */
            continue;
        if (cell[0] == 1) {
            mf_put_facing(p, base, cell[4]);
            mf_put_nonzero(p, base + 17, (float)cell[3] * 0.1f);
            mf_put_nonzero(p, base + 18, (float)cell[1] * (1.0f / 15.0f));
            mf_put_nonzero(p, base + 21, (float)cell[12] * 0.125f);
        }
        mf_put_nonzero(p, base + 19, (float)cell[5] * 0.125f);
        mf_put_nonzero(p, base + 20, (float)cell[6]);
        for (int32_t item = 0; item < 10; item++)
            mf_put_nonzero(p, base + 22 + item, scale[cell[14 + item]]);
    }
    mf_put_nonzero(p, last, (float)own[8] * (1.0f / 255.0f));
    if (own[9] < MF_ACTIONS)
        mf_put(p, last + 1 + own[9], 1.0f);
    mf_put_nonzero(p, last + 10, (float)own[10] * 0.125f);
    mf_put_nonzero(p, last + 11, scale[own[11]]);
    for (int32_t bit = 0; bit < 8; bit++)
        mf_put_nonzero(p, last + 12 + bit, (float)(own[13] >> bit & 1));
    if (own[4] < 4)
        mf_put(p, last + 20 + own[4], 1.0f);
}

/* Tokens (location, feature, value) hold what dense holds: put them back, then decode that. */
static inline void mf_decode_tokens(mf_pairs *p, const uint8_t *obs, const float *scale) {
    uint8_t dense[MF_DENSE_BYTES];
    memset(dense, 0, sizeof dense);
    for (int32_t i = 0; i < MF_TOKENS; i++) {
        const uint8_t location = obs[3 * i], feature = obs[3 * i + 1], value = obs[3 * i + 2];
        const int32_t row = location >> 4, column = location & 15;
        if (row < MF_VIEW && column < MF_VIEW && feature < MF_DENSE_CHANNELS)
            dense[(row * MF_VIEW + column) * MF_DENSE_CHANNELS + feature] = (uint8_t)(value + (feature == 0));
    }
    mf_decode_dense(p, dense, scale);
}

#endif
