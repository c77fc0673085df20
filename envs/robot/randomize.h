/* randomize.h: domain randomisation: what differs between a robot and its model, drawn for each episode.

   The CPU (physics.h) and the GPU (warp/world.h, warp/weigh.h) draw by this file, in float, so that both get the same
   factors. Every number is keyed by (seed, global env id, episode, kind, step, index): nothing depends on other draws, and
   an option that is added does not change those of the others. */
#ifndef MF_ROBOT_RANDOMIZE_H
#define MF_ROBOT_RANDOMIZE_H

#include "robot.h"

/* Kinds of draws. A stream of the generator is kind + MF_KINDS * step; 0 is the task's own start of an episode. */
enum { MF_MASS = 1, MF_LINK_MASS, MF_FRICTION, MF_STRENGTH, MF_LATENCY, MF_NOISE, MF_PUSH, MF_KINDS };

/* Has the same fields as `Record` in randomize.py. */
typedef struct {
    int32_t masses, frictions, strengths; /* 1: the model differs by these */
    int32_t latency[2];                   /* least and greatest delay of an action, in steps */
    float mass[2], link_mass[2], friction[2], strength[2]; /* least and greatest factor */
    float noise;                          /* standard deviation of every observed number, in its own unit */
    float push, push_chance;              /* m/s; probability of a step */
    int32_t push_count, push_dof[3];      /* degrees of freedom that a push changes */
    float push_axis[6];                   /* [push_count, 2]: their directions in the horizontal plane */
    int32_t looks;                        /* bits of the kinds of look.h that are randomised */
    float color[2], light[2];             /* least and greatest factor */
    float light_turn, camera, camera_turn; /* greatest angle in radians, distance along each axis in metres, angle */
} mf_random;

/* Names an episode of one environment. */
typedef struct {
    uint64_t seed;
    uint32_t env, episode;
} mf_episode;

MF_FN mf_episode mf_episode_of(uint64_t seed, uint32_t env, uint32_t episode) {
    mf_episode e;
    e.seed = seed, e.env = env, e.episode = episode;
    return e;
}

/* Word `index` of the numbers of this kind and step. */
MF_FN uint32_t mf_random_word(const mf_episode *e, int32_t kind, int32_t step, uint32_t index) {
    const uint32_t key[2] = {(uint32_t)e->seed, (uint32_t)(e->seed >> 32)};
    const uint32_t counter[4] = {e->env, e->episode, (uint32_t)kind + MF_KINDS * (uint32_t)step, index >> 2};
    uint32_t word[4];
    mf_philox(key, counter, word);
    return word[index & 3u];
}

/* 0 … 1 (never 1), with 24 bits: exact in float. */
MF_FN float mf_random_unit(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* Uniform in the range; fused, so that compilers cannot round it in two ways. */
MF_FN float mf_random_factor(const mf_episode *e, int32_t kind, const float range[2], int32_t index) {
    return fmaf(range[1] - range[0], mf_random_unit(mf_random_word(e, kind, 0, (uint32_t)index)), range[0]);
}

/* Factor of a body's mass and inertia: that of the whole robot times its own. */
MF_FN float mf_random_mass(const mf_random *o, const mf_episode *e, int32_t body) {
    return mf_random_factor(e, MF_MASS, o->mass, 0) * mf_random_factor(e, MF_LINK_MASS, o->link_mass, body);
}

/* Factor of every contact's sliding friction. */
MF_FN float mf_random_friction(const mf_random *o, const mf_episode *e) {
    return mf_random_factor(e, MF_FRICTION, o->friction, 0);
}

/* Factor of an actuator's force. */
MF_FN float mf_random_strength(const mf_random *o, const mf_episode *e, int32_t actuator) {
    return mf_random_factor(e, MF_STRENGTH, o->strength, actuator);
}

/* Steps by which actions come late in this episode. */
MF_FN int32_t mf_random_latency(const mf_random *o, const mf_episode *e) {
    const uint32_t choices = (uint32_t)(o->latency[1] - o->latency[0] + 1);
    return o->latency[0] + (int32_t)(((uint64_t)mf_random_word(e, MF_LATENCY, 0, 0) * choices) >> 32);
}

/* Entry j of the action that takes effect in this step, while `now` is kept for later; before the first: 0.
   late: [latency[1], nu], zero at the start of an episode. delay: of this episode. */
MF_FN float mf_random_late(const mf_random *o, float *late, int32_t delay, int32_t step, int32_t nu, int32_t j, float now) {
    const int64_t most = o->latency[1];
    float *const here = late + (step % most) * nu + j;
    const float then = late[((step + most - delay) % most) * nu + j];
    *here = now;
    return delay ? then : now;
}

/* Add noise to obs[n], in pairs of independent normal numbers (Box and Muller). */
MF_FN void mf_random_noise(const mf_random *o, const mf_episode *e, int32_t step, mf_real *obs, int32_t n) {
    const uint32_t key[2] = {(uint32_t)e->seed, (uint32_t)(e->seed >> 32)};
    uint32_t counter[4] = {e->env, e->episode, MF_NOISE + MF_KINDS * (uint32_t)step, 0}, word[4] = {0, 0, 0, 0};
    for (int32_t i = 0; i < n; i += 2) {
        if ((i & 2) == 0) {
            counter[3] = (uint32_t)i >> 2;
            mf_philox(key, counter, word);
        }
        const uint32_t first = i & 2 ? word[2] : word[0], second = i & 2 ? word[3] : word[1];
        const float radius = o->noise * sqrtf(-2 * logf((mf_random_unit(first) + 0x1p-25f)));
        const float angle = 6.28318531f * mf_random_unit(second);
        obs[i] += radius * cosf(angle);
        if (i + 1 < n) obs[i + 1] += radius * sinf(angle);
    }
}

/* Change qvel by a push in a random horizontal direction, in a random share of the steps. */
MF_FN void mf_random_push(const mf_random *o, const mf_episode *e, int32_t step, mf_real *qvel) {
    if (!(mf_random_unit(mf_random_word(e, MF_PUSH, step, 0)) < o->push_chance)) return;
    const float speed = o->push * mf_random_unit(mf_random_word(e, MF_PUSH, step, 1));
    const float angle = 6.28318531f * mf_random_unit(mf_random_word(e, MF_PUSH, step, 2));
    const float x = speed * cosf(angle), y = speed * sinf(angle);
    for (int32_t k = 0; k < o->push_count; k++)
        qvel[o->push_dof[k]] += o->push_axis[2 * k] * x + o->push_axis[2 * k + 1] * y;
}

#endif
