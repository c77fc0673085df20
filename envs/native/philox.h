/* philox.h: counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as
   1, 2, 3", SC 2011).

   key = seed; counter = (env, t, stream, block). The n-th draw of a (env, t, stream) is word n%4 of block n/4,
   so that any draw is found without the ones before it and nothing depends on threads or history. */
#ifndef MF_PHILOX_H
#define MF_PHILOX_H

#include "contract.h"

typedef struct {
    uint32_t key[2];
    uint32_t env, t, stream;
    uint32_t drawn;   /* numbers drawn so far */
    uint32_t word[4]; /* the current block */
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

/* Uniform in 0 … k-1 (bias below k / 2^32). */
MF_FN int32_t mf_randbelow(mf_rng *r, int32_t k) {
    return (int32_t)(((uint64_t)mf_rng_next(r) * (uint32_t)k) >> 32);
}

/* Fisher–Yates from the end. */
MF_FN void mf_shuffle(mf_rng *r, uint16_t *list, int32_t n) {
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = mf_randbelow(r, i + 1);
        const uint16_t swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
}

#endif
