/* repeat.h: repeats each action of the policy for several steps of an environment (envs/repeat.py).

     mf_repeat_range(lo, hi): for each env: fn(ctx, i, i + 1), up to `repeat` times ─► rewards added up

   The repetition stops at an episode's end, and the row is that of its last step. The call that begins an episode is
   not repeated, since its action is ignored. */
#ifndef MF_REPEAT_H
#define MF_REPEAT_H

#include <stdint.h>

typedef int32_t (*mf_repeat_fn)(void *ctx, int32_t lo, int32_t hi);

typedef struct {
    mf_repeat_fn fn; /* the environments' job */
    void *ctx;
    int32_t agents, repeat; /* agents of an env; most steps per decision */
    double *sum;            /* [num_envs * agents] */
    float *reward;          /* rows of all agents, written by the job */
    const uint8_t *terminal, *truncation, *reset;
} mf_repeat;

static int32_t mf_repeat_one(const mf_repeat *r, int32_t i) {
    const int64_t first = (int64_t)i * r->agents, last = first + r->agents;
    for (int64_t a = first; a < last; a++) r->sum[a] = 0;
    for (int32_t k = 0; k < r->repeat; k++) {
        const int32_t fault = r->fn(r->ctx, i, i + 1);
        if (fault) return fault;
        int ends = 0;
        for (int64_t a = first; a < last; a++) {
            r->sum[a] += r->reward[a];
            ends |= r->terminal[a] | r->truncation[a] | r->reset[a];
        }
        if (ends) break;
    }
    for (int64_t a = first; a < last; a++) r->reward[a] = (float)r->sum[a];
    return 0;
}

/* The native job. Ranges that do not overlap may run on any threads. */
static __attribute__((unused)) int32_t mf_repeat_range(void *repeat, int32_t lo, int32_t hi) {
    for (int32_t i = lo; i < hi; i++) {
        const int32_t fault = mf_repeat_one((const mf_repeat *)repeat, i);
        if (fault) return fault;
    }
    return 0;
}

#endif
