/* forward.h: what robots that are paid for moving forward share. */
#ifndef MF_ROBOT_FORWARD_H
#define MF_ROBOT_FORWARD_H

#include "kit.h"

/* Options of a robot that never ends an episode (forward_options in forward.py). */
typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, reset_noise_scale;
    int32_t exclude_current_positions_from_observation;
} mf_forward_params;

/* A step's velocity along x, what is paid for it, and what the action costs. */
typedef struct {
    mf_real x_velocity, forward, ctrl;
} mf_forward;

MF_FN mf_forward mf_forward_of(const mf_physics *p, mf_real x, mf_real x_before, const float *action,
                               mf_real forward_weight, mf_real ctrl_weight) {
    const mf_real x_velocity = (x - x_before) / p->dt;
    const mf_forward step = {x_velocity, forward_weight * x_velocity, mf_action_cost(ctrl_weight, action, p->nu)};
    return step;
}

/* Write the seven numbers of XY_INFO (forward.py) and return the place behind them. */
MF_FN mf_real *mf_put_xy_info(mf_real *info, const mf_physics *p, mf_forward step, mf_real y_velocity) {
    info = mf_put(info, p->qpos, 2);
    *info++ = mf_norm(p->qpos, 2);
    *info++ = step.x_velocity;
    *info++ = y_velocity;
    *info++ = step.forward;
    *info++ = -step.ctrl;
    return info;
}

#endif
