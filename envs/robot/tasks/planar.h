/* planar.h: what the planar walkers (Hopper, Walker2d) share: qpos is x, height, angle of the torso, joints. */
#ifndef MF_ROBOT_PLANAR_H
#define MF_ROBOT_PLANAR_H

#include "forward.h"

/* Options of both (planar_options in forward.py); a task's own come after them. */
typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, healthy_reward;
    mf_real healthy_z_range[2], healthy_angle_range[2];
    mf_real reset_noise_scale;
    int32_t terminate_when_unhealthy, exclude_current_positions_from_observation;
} mf_planar_params;

/* Height and angle of the torso are in their ranges, ends excluded. */
MF_FN int32_t mf_planar_upright(const mf_planar_params *o, const mf_physics *p) {
    const mf_real z = p->qpos[1], angle = p->qpos[2];
    return o->healthy_z_range[0] < z && z < o->healthy_z_range[1] && o->healthy_angle_range[0] < angle &&
           angle < o->healthy_angle_range[1];
}

/* Reward and info (PLANAR_INFO in forward.py) of one step, and whether it ended the episode. */
MF_FN int32_t mf_planar_after(const mf_planar_params *o, const mf_physics *p, const mf_task_state *state,
                              const float *action, int32_t healthy, mf_real *reward, mf_real *info) {
    const mf_forward step = mf_forward_of(p, p->qpos[0], state->before[0], action, o->forward_reward_weight,
                                          o->ctrl_cost_weight);
    const mf_real survive = healthy * o->healthy_reward;
    info[0] = p->qpos[0];
    info[1] = p->qpos[1] - p->init_qpos[1];
    info[2] = step.x_velocity;
    info[3] = step.forward;
    info[4] = -step.ctrl;
    info[5] = survive;
    *reward = step.forward + survive - step.ctrl;
    return !healthy && o->terminate_when_unhealthy;
}

/* qpos, without x unless it is kept, then qvel clipped to ±10. */
MF_FN void mf_planar_observe(const mf_planar_params *o, const mf_physics *p, mf_real *obs) {
    const int32_t skipped = o->exclude_current_positions_from_observation;
    mf_put_clipped(mf_put(obs, p->qpos + skipped, p->nq - skipped), p->qvel, p->nv, 10);
}

#endif
