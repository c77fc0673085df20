/* half_cheetah.h: half of a cheetah runs forward in a plane (Gymnasium's HalfCheetah-v5).

   Reward: forward velocity − control cost. Never ends by itself. */
#ifndef MF_ROBOT_HALF_CHEETAH_H
#define MF_ROBOT_HALF_CHEETAH_H

#include "kit.h"

typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, reset_noise_scale;
    int32_t exclude_current_positions_from_observation;
} half_cheetah_params;

enum { half_cheetah_contact_forces = 0 };

MF_FN void half_cheetah_before(const half_cheetah_params *o, const mf_physics *p, mf_task_state *state) {
    (void)o;
    state->before[0] = p->qpos[0];
}

MF_FN int32_t half_cheetah_after(const half_cheetah_params *o, const mf_physics *p, mf_task_state *state,
                                 const float *action, mf_real *reward, mf_real *info) {
    const mf_real x_velocity = (p->qpos[0] - state->before[0]) / p->dt;
    const mf_real forward = o->forward_reward_weight * x_velocity;
    const mf_real cost = mf_action_cost(o->ctrl_cost_weight, action, p->nu);
    *reward = forward - cost;
    info[0] = p->qpos[0];
    info[1] = x_velocity;
    info[2] = forward;
    info[3] = -cost;
    return 0;
}

MF_FN void half_cheetah_observe(const half_cheetah_params *o, const mf_physics *p, mf_real *obs) {
    const int32_t skipped = o->exclude_current_positions_from_observation;
    mf_put(mf_put(obs, p->qpos + skipped, p->nq - skipped), p->qvel, p->nv);
}

MF_FN void half_cheetah_reset(const half_cheetah_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos,
                              mf_real *qvel) {
    mf_reset_uniform_normal(p, rng, o->reset_noise_scale, qpos, qvel);
}

#endif
