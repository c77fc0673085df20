/* planar.h: what the planar walkers (Hopper, Walker2d) share: qpos is x, height, angle of the torso, joints. */
#ifndef MF_ROBOT_PLANAR_H
#define MF_ROBOT_PLANAR_H

#include "kit.h"

enum { PLANAR_X, PLANAR_Z, PLANAR_X_VELOCITY, PLANAR_FORWARD, PLANAR_CTRL, PLANAR_SURVIVE, PLANAR_INFO };

/* Reward and info of one step; x_before is qpos[0] before it. */
MF_FN mf_real mf_planar_reward(const mf_physics *p, mf_real x_before, const float *action, mf_real forward_weight,
                               mf_real ctrl_weight, mf_real survive, mf_real *info) {
    const mf_real x_velocity = (p->qpos[0] - x_before) / p->dt;
    const mf_real forward = forward_weight * x_velocity;
    const mf_real cost = mf_action_cost(ctrl_weight, action, p->nu);
    info[PLANAR_X] = p->qpos[0];
    info[PLANAR_Z] = p->qpos[1] - p->init_qpos[1];
    info[PLANAR_X_VELOCITY] = x_velocity;
    info[PLANAR_FORWARD] = forward;
    info[PLANAR_CTRL] = -cost;
    info[PLANAR_SURVIVE] = survive;
    return forward + survive - cost;
}

/* qpos, without the first `skipped`, then qvel clipped to ±10. */
MF_FN void mf_planar_observe(const mf_physics *p, int32_t skipped, mf_real *obs) {
    mf_put_clipped(mf_put(obs, p->qpos + skipped, p->nq - skipped), p->qvel, p->nv, 10);
}

#endif
