/* humanoid.h: a 3D figure with two legs and two arms walks forward (Gymnasium's Humanoid-v5).

   Reward: forward velocity of the centre of mass + staying healthy − control cost − contact cost. Unhealthy: the
   torso's height outside its range (ends excluded). */
#ifndef MF_ROBOT_HUMANOID_H
#define MF_ROBOT_HUMANOID_H

#include "humanoid_body.h"

typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, contact_cost_weight, contact_cost_range[2], healthy_reward;
    mf_real healthy_z_range[2], reset_noise_scale;
    int32_t terminate_when_unhealthy;
    mf_humanoid_view view;
} humanoid_params;

enum { humanoid_contact_forces = 1 };

/* x and y of the centre of mass of all bodies, the world's included, as NumPy's einsum adds them: body by body. */
MF_FN void mf_mass_center(const mf_physics *p, mf_real *xy) {
    const mf_real mass = mf_sum(p->body_mass, p->nbody);
    for (int32_t axis = 0; axis < 2; axis++) {
        mf_real moment = 0;
        for (int32_t body = 0; body < p->nbody; body++) moment += p->body_mass[body] * p->xipos[3 * body + axis];
        xy[axis] = moment / mass;
    }
}

MF_FN void humanoid_before(const humanoid_params *o, const mf_physics *p, mf_task_state *state) {
    (void)o;
    mf_mass_center(p, state->before);
}

MF_FN int32_t humanoid_after(const humanoid_params *o, const mf_physics *p, mf_task_state *state,
                             const float *action, mf_real *reward, mf_real *info) {
    (void)action; /* the control cost is that of ctrl, in doubles */
    mf_real center[2];
    mf_mass_center(p, center);
    const mf_real x_velocity = (center[0] - state->before[0]) / p->dt;
    const mf_real forward = o->forward_reward_weight * x_velocity;
    const int32_t healthy = o->healthy_z_range[0] < p->qpos[2] && p->qpos[2] < o->healthy_z_range[1];
    const mf_real survive = healthy * o->healthy_reward;
    const mf_real ctrl = mf_humanoid_ctrl_cost(p, o->ctrl_cost_weight);
    const mf_real contact = mf_humanoid_contact_cost(p, o->contact_cost_weight, o->contact_cost_range);
    *reward = forward + survive - (ctrl + contact);
    info = mf_put(info, p->qpos, 2);
    info = mf_put_tendons(info, p);
    info[0] = mf_norm(p->qpos, 2);
    info[1] = x_velocity;
    info[2] = (center[1] - state->before[1]) / p->dt;
    info[3] = survive;
    info[4] = forward;
    info[5] = -ctrl;
    info[6] = -contact;
    return !healthy && o->terminate_when_unhealthy;
}

MF_FN void humanoid_observe(const humanoid_params *o, const mf_physics *p, mf_real *obs) {
    mf_humanoid_observe(&o->view, p, obs);
}

MF_RESET(humanoid, mf_reset_uniform, reset_noise_scale)

#endif
