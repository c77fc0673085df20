/* inverted_pendulum.h: a cart keeps a pole upright (Gymnasium's InvertedPendulum-v5).

   Reward: 1 a step, 0 where the episode ends: the pole leans more than 0.2 rad, or the state is not finite. */
#ifndef MF_ROBOT_INVERTED_PENDULUM_H
#define MF_ROBOT_INVERTED_PENDULUM_H

#include "kit.h"

typedef struct {
    mf_real reset_noise_scale;
} inverted_pendulum_params;

enum { inverted_pendulum_contact_forces = 0 };

MF_KEEP_POSITION(inverted_pendulum, 0)

MF_FN int32_t inverted_pendulum_after(const inverted_pendulum_params *o, const mf_physics *p, mf_task_state *state,
                                      const float *action, mf_real *reward, mf_real *info) {
    (void)o, (void)state, (void)action;
    int32_t ended = !(fabs(p->qpos[1]) <= 0.2);
    for (int32_t i = 0; i < p->nq; i++) ended |= !isfinite(p->qpos[i]);
    for (int32_t i = 0; i < p->nv; i++) ended |= !isfinite(p->qvel[i]);
    *reward = info[0] = !ended;
    return ended;
}

MF_FN void inverted_pendulum_observe(const inverted_pendulum_params *o, const mf_physics *p, mf_real *obs) {
    (void)o;
    mf_put_state(p, 0, obs);
}

MF_RESET(inverted_pendulum, mf_reset_uniform, reset_noise_scale)

#endif
