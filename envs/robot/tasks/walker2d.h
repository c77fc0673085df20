/* walker2d.h: a planar robot with two legs walks forward (Gymnasium's Walker2d-v5).

   Reward: forward velocity + staying healthy − control cost. Unhealthy: the torso's height or angle outside its
   range (ends excluded). */
#ifndef MF_ROBOT_WALKER2D_H
#define MF_ROBOT_WALKER2D_H

#include "planar.h"

typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, healthy_reward;
    mf_real healthy_z_range[2], healthy_angle_range[2];
    mf_real reset_noise_scale;
    int32_t terminate_when_unhealthy, exclude_current_positions_from_observation;
} walker2d_params;

enum { walker2d_contact_forces = 0 };

MF_FN void walker2d_before(const walker2d_params *o, const mf_physics *p, mf_task_state *state) {
    (void)o;
    state->before[0] = p->qpos[0];
}

MF_FN int32_t walker2d_after(const walker2d_params *o, const mf_physics *p, mf_task_state *state,
                             const float *action, mf_real *reward, mf_real *info) {
    const mf_real z = p->qpos[1], angle = p->qpos[2];
    const int32_t healthy = o->healthy_z_range[0] < z && z < o->healthy_z_range[1] &&
                            o->healthy_angle_range[0] < angle && angle < o->healthy_angle_range[1];
    *reward = mf_planar_reward(p, state->before[0], action, o->forward_reward_weight, o->ctrl_cost_weight,
                               healthy * o->healthy_reward, info);
    return !healthy && o->terminate_when_unhealthy;
}

MF_FN void walker2d_observe(const walker2d_params *o, const mf_physics *p, mf_real *obs) {
    mf_planar_observe(p, o->exclude_current_positions_from_observation, obs);
}

MF_FN void walker2d_reset(const walker2d_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos,
                          mf_real *qvel) {
    mf_reset_uniform(p, rng, o->reset_noise_scale, qpos, qvel);
}

#endif
