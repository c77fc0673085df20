/* inverted_double_pendulum.h: a cart keeps two linked poles upright (Gymnasium's InvertedDoublePendulum-v5).

   Reward: being alive − distance of the tip (the model's first site) from upright − speed of the poles. Ends when
   the tip is at height 1 or below. */
#ifndef MF_ROBOT_INVERTED_DOUBLE_PENDULUM_H
#define MF_ROBOT_INVERTED_DOUBLE_PENDULUM_H

#include "kit.h"

typedef struct {
    mf_real healthy_reward, reset_noise_scale;
} inverted_double_pendulum_params;

enum { inverted_double_pendulum_contact_forces = 0 };

MF_KEEP_POSITION(inverted_double_pendulum, 0)

/* x² as NumPy's scalars have it: by pow, whose last bit is not always that of x · x (the compiler would fold a
   constant exponent into the product). */
MF_FN mf_real mf_pow_square(mf_real x) {
    const volatile mf_real two = 2;
    return pow(x, two);
}

MF_FN int32_t inverted_double_pendulum_after(const inverted_double_pendulum_params *o, const mf_physics *p,
                                             mf_task_state *state, const float *action, mf_real *reward,
                                             mf_real *info) {
    (void)state, (void)action;
    const mf_real x = p->site_xpos[0], y = p->site_xpos[2];
    const int32_t ended = y <= 1;
    const mf_real distance = 0.01 * mf_pow_square(x) + mf_pow_square(y - 2);
    const mf_real speed = 1e-3 * mf_pow_square(p->qvel[1]) + 5e-3 * mf_pow_square(p->qvel[2]);
    info[0] = o->healthy_reward * !ended;
    info[1] = -distance;
    info[2] = -speed;
    *reward = info[0] - distance - speed;
    return ended;
}

MF_FN void inverted_double_pendulum_observe(const inverted_double_pendulum_params *o, const mf_physics *p,
                                            mf_real *obs) {
    (void)o;
    *obs++ = p->qpos[0];
    for (int32_t i = 1; i < p->nq; i++) *obs++ = sin(p->qpos[i]);
    for (int32_t i = 1; i < p->nq; i++) *obs++ = cos(p->qpos[i]);
    mf_put_clipped(mf_put_clipped(obs, p->qvel, p->nv, 10), p->qfrc_constraint, 1, 10);
}

MF_RESET(inverted_double_pendulum, mf_reset_uniform_normal, reset_noise_scale)

#endif
