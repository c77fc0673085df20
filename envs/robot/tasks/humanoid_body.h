/* humanoid_body.h: what Humanoid and HumanoidStandup share: their body and its observation. */
#ifndef MF_ROBOT_HUMANOID_BODY_H
#define MF_ROBOT_HUMANOID_BODY_H

#include "kit.h"

typedef struct {
    int32_t exclude_current_positions, cinert, cvel, qfrc_actuator, cfrc_ext; /* 1: as the option's name says */
} mf_humanoid_view;

/* qpos (without x and y unless kept), qvel, then what is chosen of: inertia and velocity of each body about the
   centre of mass, actuator forces on the joints, contact forces on each body (the world's body left out). */
MF_FN void mf_humanoid_observe(const mf_humanoid_view *view, const mf_physics *p, mf_real *obs) {
    const int32_t bodies = p->nbody - 1;
    obs = mf_put_state(p, 2 * view->exclude_current_positions, obs);
    if (view->cinert) obs = mf_put(obs, p->cinert + 10, 10 * bodies);
    if (view->cvel) obs = mf_put(obs, p->cvel + 6, 6 * bodies);
    if (view->qfrc_actuator) obs = mf_put(obs, p->qfrc_actuator + 6, p->nv - 6);
    if (view->cfrc_ext) obs = mf_put(obs, p->cfrc_ext + 6, 6 * bodies);
}

/* Cost of ctrl, in doubles (other robots pay for the action, in float32). */
MF_FN mf_real mf_humanoid_ctrl_cost(const mf_physics *p, mf_real weight) {
    return weight * mf_sum_squares(p->ctrl, p->nu);
}

/* Write the four numbers of TENDONS (humanoid_body.py) and return the place behind them. */
MF_FN mf_real *mf_put_tendons(mf_real *info, const mf_physics *p) {
    return mf_put(mf_put(info, p->ten_length, 2), p->ten_velocity, 2);
}

/* weight · Σ contact forces², clipped. */
MF_FN mf_real mf_humanoid_contact_cost(const mf_physics *p, mf_real weight, const mf_real range[2]) {
    return mf_clip(weight * mf_sum_squares(p->cfrc_ext, 6 * p->nbody), range[0], range[1]);
}

#endif
