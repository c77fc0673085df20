/* hopper.h: a planar robot with one leg hops forward (Gymnasium's Hopper-v5).

   Reward: forward velocity + staying healthy − control cost. Unhealthy: a value of the state behind x and height,
   the height itself or the torso's angle outside its range (ends excluded). */
#ifndef MF_ROBOT_HOPPER_H
#define MF_ROBOT_HOPPER_H

#include "planar.h"

typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, healthy_reward;
    mf_real healthy_state_range[2], healthy_z_range[2], healthy_angle_range[2];
    mf_real reset_noise_scale;
    int32_t terminate_when_unhealthy, exclude_current_positions_from_observation;
} hopper_params;

enum { hopper_contact_forces = 0 };

MF_FN int32_t hopper_healthy(const hopper_params *o, const mf_physics *p) {
    for (int32_t i = 2; i < p->nq + p->nv; i++) {
        const mf_real value = i < p->nq ? p->qpos[i] : p->qvel[i - p->nq];
        if (!(o->healthy_state_range[0] < value && value < o->healthy_state_range[1])) return 0;
    }
    const mf_real z = p->qpos[1], angle = p->qpos[2];
    return o->healthy_z_range[0] < z && z < o->healthy_z_range[1] && o->healthy_angle_range[0] < angle &&
           angle < o->healthy_angle_range[1];
}

MF_FN void hopper_before(const hopper_params *o, const mf_physics *p, mf_task_state *state) {
    (void)o;
    state->before[0] = p->qpos[0];
}

MF_FN int32_t hopper_after(const hopper_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                           mf_real *reward, mf_real *info) {
    const int32_t healthy = hopper_healthy(o, p);
    *reward = mf_planar_reward(p, state->before[0], action, o->forward_reward_weight, o->ctrl_cost_weight,
                               healthy * o->healthy_reward, info);
    return !healthy && o->terminate_when_unhealthy;
}

MF_FN void hopper_observe(const hopper_params *o, const mf_physics *p, mf_real *obs) {
    mf_planar_observe(p, o->exclude_current_positions_from_observation, obs);
}

MF_FN void hopper_reset(const hopper_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) {
    mf_reset_uniform(p, rng, o->reset_noise_scale, qpos, qvel);
}

#endif
