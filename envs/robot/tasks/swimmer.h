/* swimmer.h: a chain of three links swims forward in a plane (Gymnasium's Swimmer-v5).

   Reward: forward velocity − control cost. Never ends by itself. */
#ifndef MF_ROBOT_SWIMMER_H
#define MF_ROBOT_SWIMMER_H

#include "kit.h"

typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, reset_noise_scale;
    int32_t exclude_current_positions_from_observation;
} swimmer_params;

enum { swimmer_contact_forces = 0 };

MF_FN void swimmer_before(const swimmer_params *o, const mf_physics *p, mf_task_state *state) {
    (void)o;
    mf_put(state->before, p->qpos, 2);
}

MF_FN int32_t swimmer_after(const swimmer_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                            mf_real *reward, mf_real *info) {
    const mf_real x_velocity = (p->qpos[0] - state->before[0]) / p->dt;
    const mf_real forward = o->forward_reward_weight * x_velocity;
    const mf_real cost = mf_action_cost(o->ctrl_cost_weight, action, p->nu);
    *reward = forward - cost;
    info[0] = p->qpos[0];
    info[1] = p->qpos[1];
    info[2] = mf_norm(p->qpos, 2);
    info[3] = x_velocity;
    info[4] = (p->qpos[1] - state->before[1]) / p->dt;
    info[5] = forward;
    info[6] = -cost;
    return 0;
}

MF_FN void swimmer_observe(const swimmer_params *o, const mf_physics *p, mf_real *obs) {
    const int32_t skipped = 2 * o->exclude_current_positions_from_observation;
    mf_put(mf_put(obs, p->qpos + skipped, p->nq - skipped), p->qvel, p->nv);
}

MF_FN void swimmer_reset(const swimmer_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) {
    mf_reset_uniform(p, rng, o->reset_noise_scale, qpos, qvel);
}

#endif
