/* advantage.h: one row (one time step) of the advantage recursion over all agents. Branches are selects, so that
   the loops vectorise. Formula and names: metta_fast/algorithms/ppo/advantage/__init__.py.

   terminal, truncation and mask hold 0 or 1. ratio NULL: GAE. next_advantage NULL: A[T] = 0.
   bootstrap NULL: a truncation bootstraps from next_value. */
#ifndef MF_ADVANTAGE_H
#define MF_ADVANTAGE_H

#include <stddef.h>
#include <stdint.h>

static inline float mf_least(float a, float b) { return a < b ? a : b; }

/* The loop, with what is constant for the row known to the compiler. */
static inline __attribute__((always_inline)) void mf_advantage_loop(
    const float *restrict value, const float *restrict next_value, const float *restrict reward,
    const uint8_t *restrict terminal, const uint8_t *restrict truncation, const uint8_t *restrict mask,
    const float *restrict ratio, const float *restrict bootstrap, const float *restrict next_advantage,
    float *restrict advantage, float *restrict returns, ptrdiff_t agents, float gamma, float decay,
    float rho_clip, float c_clip, int has_final_obs) {
    for (ptrdiff_t n = 0; n < agents; n++) {
        const int32_t done = terminal[n] | truncation[n];
        const int32_t stop = has_final_obs ? terminal[n] : done;
        const float last = bootstrap && truncation[n] ? bootstrap[n] : next_value[n];
        const float following = stop ? 0.0f : last;
        float rest = next_advantage ? next_advantage[n] : 0.0f;
        float delta = reward[n] + gamma * following - value[n];
        rest = done ? 0.0f : decay * rest;
        if (ratio) {
            delta *= mf_least(ratio[n], rho_clip);
            rest *= mf_least(ratio[n], c_clip);
        }
        const float result = mask[n] ? delta + rest : 0.0f;
        advantage[n] = result;
        returns[n] = result + value[n];
    }
}

static inline void mf_advantage_row(const float *value, const float *next_value, const float *reward,
                                    const uint8_t *terminal, const uint8_t *truncation, const uint8_t *mask,
                                    const float *ratio, const float *bootstrap, const float *next_advantage,
                                    float *advantage, float *returns, ptrdiff_t agents, float gamma,
                                    float gae_lambda, float rho_clip, float c_clip, int has_final_obs) {
    const float decay = gamma * gae_lambda;
#define MF_LOOP(RATIO, BOOTSTRAP, NEXT, FINAL)                                                                   \
    mf_advantage_loop(value, next_value, reward, terminal, truncation, mask, RATIO, BOOTSTRAP, NEXT, advantage,  \
                      returns, agents, gamma, decay, rho_clip, c_clip, FINAL)
    if (bootstrap || !next_advantage)
        MF_LOOP(ratio, bootstrap, next_advantage, has_final_obs);
    else if (ratio && has_final_obs)
        MF_LOOP(ratio, NULL, next_advantage, 1);
    else if (ratio)
        MF_LOOP(ratio, NULL, next_advantage, 0);
    else if (has_final_obs)
        MF_LOOP(NULL, NULL, next_advantage, 1);
    else
        MF_LOOP(NULL, NULL, next_advantage, 0);
#undef MF_LOOP
}

#endif
