/* kit.h: what several robot tasks share. Operations are in NumPy's order, so that results equal Gymnasium's to the
   bit (with -ffp-contract=off: only what is written as fma is fused). */
#ifndef MF_ROBOT_KIT_H
#define MF_ROBOT_KIT_H

#include <math.h>
#include "../robot.h"

MF_FN mf_real mf_clip(mf_real x, mf_real low, mf_real high) { return x < low ? low : x > high ? high : x; }

/* Length of v[n]: NumPy takes the root of BLAS's dot product, which fuses multiply and add. */
MF_FN mf_real mf_norm(const mf_real *v, int32_t n) {
    mf_real square = 0;
    for (int32_t i = 0; i < n; i++) square = fma(v[i], v[i], square);
    return sqrt(square);
}

MF_FN mf_real mf_distance(const mf_real *a, const mf_real *b) {
    const mf_real v[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
    return mf_norm(v, 3);
}

/* weight · Σ action², in float32 as NumPy computes it for float32 actions. */
MF_FN float mf_action_cost(mf_real weight, const float *action, int32_t nu) {
    return (float)weight * mf_sum_squares_float(action, nu);
}

/* Write in[n] at `out` (clipped to ±bound) and return the place behind it. */
MF_FN mf_real *mf_put(mf_real *out, const mf_real *in, int32_t n) {
    for (int32_t i = 0; i < n; i++) out[i] = in[i];
    return out + n;
}

MF_FN mf_real *mf_put_clipped(mf_real *out, const mf_real *in, int32_t n, mf_real bound) {
    for (int32_t i = 0; i < n; i++) out[i] = mf_clip(in[i], -bound, bound);
    return out + n;
}

/* Write qpos, without the first `skipped`, then qvel; return the place behind them. */
MF_FN mf_real *mf_put_state(const mf_physics *p, int32_t skipped, mf_real *obs) {
    return mf_put(mf_put(obs, p->qpos + skipped, p->nq - skipped), p->qvel, p->nv);
}

/* Start near the model's rest: uniform noise of ±scale on every position and velocity. */
MF_FN void mf_reset_uniform(const mf_physics *p, mf_rng *rng, mf_real scale, mf_real *qpos, mf_real *qvel) {
    for (int32_t i = 0; i < p->nq; i++) qpos[i] = p->init_qpos[i] + mf_uniform(rng, -scale, scale);
    for (int32_t i = 0; i < p->nv; i++) qvel[i] = p->init_qvel[i] + mf_uniform(rng, -scale, scale);
}

/* The same with normal noise of that scale on the velocities. */
MF_FN void mf_reset_uniform_normal(const mf_physics *p, mf_rng *rng, mf_real scale, mf_real *qpos, mf_real *qvel) {
    for (int32_t i = 0; i < p->nq; i++) qpos[i] = p->init_qpos[i] + mf_uniform(rng, -scale, scale);
    for (int32_t i = 0; i < p->nv; i++) qvel[i] = p->init_qvel[i] + scale * mf_normal(rng);
}

/* NAME_before of a task that needs the first COUNT of qpos before a step (0: nothing). */
#define MF_KEEP_POSITION(NAME, COUNT)                                                               \
    MF_FN void NAME##_before(const NAME##_params *o, const mf_physics *p, mf_task_state *state) { \
        (void)o;                                                                                    \
        mf_put(state->before, p->qpos, COUNT);                                                      \
    }

/* NAME_reset of a task that starts as HOW says, one of the two above; SCALE: the option that is its scale. */
#define MF_RESET(NAME, HOW, SCALE)                                                                      \
    MF_FN void NAME##_reset(const NAME##_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) { \
        HOW(p, rng, o->SCALE, qpos, qvel);                                                              \
    }

#endif
