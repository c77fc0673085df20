/* philox.h: counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as
   1, 2, 3", SC 2011).

   key = seed; counter = (env, t, stream, block). The n-th draw of a (env, t, stream) is word n%4 of block n/4. So any
   draw can be computed without the earlier ones, and nothing depends on threads or history. */
#ifndef MF_PHILOX_H
#define MF_PHILOX_H

#include "contract.h"

typedef struct {
    uint32_t key[2];
    uint32_t env, t, stream;
    uint32_t drawn;   /* numbers drawn so far */
    uint32_t word[4]; /* current block */
} mf_rng;

MF_FN void mf_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

MF_FN void mf_rng_start(mf_rng *r, uint64_t seed, uint32_t env, uint32_t t, uint32_t stream) {
    r->key[0] = (uint32_t)seed, r->key[1] = (uint32_t)(seed >> 32);
    r->env = env, r->t = t, r->stream = stream, r->drawn = 0;
}

MF_FN uint32_t mf_rng_next(mf_rng *r) {
    const uint32_t word = r->drawn & 3u;
    if (word == 0) {
        const uint32_t counter[4] = {r->env, r->t, r->stream, r->drawn >> 2};
        mf_philox(r->key, counter, r->word);
    }
    r->drawn++;
    return r->word[word];
}

/* Draws uniformly from 0 … k-1 (bias below k / 2^32). */
MF_FN int32_t mf_randbelow(mf_rng *r, int32_t k) {
    return (int32_t)(((uint64_t)mf_rng_next(r) * (uint32_t)k) >> 32);
}

/* Skips `n` numbers. */
MF_FN void mf_rng_skip(mf_rng *r, uint32_t n) {
    r->drawn += n;
    if ((r->drawn & 3u) != 0) {
        const uint32_t counter[4] = {r->env, r->t, r->stream, r->drawn >> 2};
        mf_philox(r->key, counter, r->word);
    }
}

/* Shuffles a list: Fisher–Yates from the end. */
MF_FN void mf_shuffle(mf_rng *r, uint16_t *list, int32_t n) {
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = mf_randbelow(r, i + 1);
        const uint16_t swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
}

/* Writes the list that mf_shuffle makes of 0 … n-1 with a newly started generator. Each lane tracks the places of its
   own numbers, so that the exchanges need not wait for one another. Every lane must call it. */
MF_FN void mf_shuffled_lanes(const mf_rng *r, uint16_t *list, int32_t n, int32_t lane, int32_t lanes) {
    for (int32_t first = 0; first < n; first += lanes) {
        int32_t place = first + lane;
        for (int32_t from = 0; from < n - 1; from += lanes) {
            const int32_t draw = from + lane, top = n - 1 - draw;
            const uint32_t counter[4] = {r->env, r->t, r->stream, (uint32_t)draw >> 2};
            uint32_t word[4];
            mf_philox(r->key, counter, word);
            const uint32_t low = draw & 1 ? word[1] : word[0], high = draw & 1 ? word[3] : word[2];
            const int32_t other = (int32_t)(((uint64_t)(draw & 2 ? high : low) * (uint32_t)(top + 1)) >> 32);
            for (int32_t k = 0; k < mf_min(lanes, n - 1 - from); k++) {
                const int32_t i = n - 1 - from - k, j = MF_LANES_TAKE(other, k);
                place = place == i ? j : place == j ? i : place;
            }
        }
        if (first + lane < n)
            list[place] = (uint16_t)(first + lane);
    }
}

/* Does the same as mf_shuffle with up to 32 lanes: each draws blocks of its own, then one lane exchanges. `draws` is
   scratch memory for MF_SHUFFLE_DRAWS numbers that no lane uses otherwise. */
enum { MF_SHUFFLE_DRAWS = 128 };
MF_FN void mf_shuffle_lanes(mf_rng *r, uint16_t *list, int32_t n, uint16_t *draws, int32_t lane, int32_t lanes) {
    if (lanes == 1) {
        mf_shuffle(r, list, n);
        return;
    }
    for (int32_t top = n - 1; top > 0;) {
        /* as many draws as the lanes' blocks hold; draw k belongs to place top - k */
        const uint32_t block = (r->drawn >> 2) + (uint32_t)lane;
        const int32_t count = mf_min(top, 4 * lanes - (int32_t)(r->drawn & 3u));
        const int32_t first = (int32_t)(4 * block - r->drawn);
        uint32_t word[4];
        const uint32_t counter[4] = {r->env, r->t, r->stream, block};
        mf_philox(r->key, counter, word);
        for (int32_t w = 0; w < 4; w++) {
            const int32_t k = first + w;
            if (k >= 0 && k < count)
                draws[k] = (uint16_t)(((uint64_t)word[w] * (uint32_t)(top - k + 1)) >> 32);
        }
        MF_LANES_SYNC();
        uint16_t next = draws[0]; /* read ahead, so that it need not wait for the last exchange */
        for (int32_t k = 0; lane == 0 && k < count; k++) {
            const uint16_t j = next, swap = list[top - k];
            next = draws[mf_min(k + 1, count - 1)];
            list[top - k] = list[j];
            list[j] = swap;
        }
        MF_LANES_SYNC();
        top -= count;
        r->drawn += (uint32_t)count;
    }
    mf_rng_skip(r, 0);
}

#endif
