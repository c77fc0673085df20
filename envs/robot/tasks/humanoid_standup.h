/* humanoid_standup.h: the humanoid, lying, gets up (Gymnasium's HumanoidStandup-v5).

   Reward: the torso's height over one physics timestep − control cost − impact cost + 1. Never ends by itself. */
#ifndef MF_ROBOT_HUMANOID_STANDUP_H
#define MF_ROBOT_HUMANOID_STANDUP_H

#include "humanoid_body.h"

/* uph_cost_weight is an option of Gymnasium's task that its reward leaves out: taken, checked, without effect. */
typedef struct {
    mf_real uph_cost_weight, ctrl_cost_weight, impact_cost_weight, impact_cost_range[2], reset_noise_scale;
    mf_humanoid_view view;
} humanoid_standup_params;

enum { humanoid_standup_contact_forces = 1 };

MF_KEEP_POSITION(humanoid_standup, 0)

MF_FN int32_t humanoid_standup_after(const humanoid_standup_params *o, const mf_physics *p, mf_task_state *state,
                                     const float *action, mf_real *reward, mf_real *info) {
    (void)state, (void)action;
    const mf_real height = p->qpos[2] / p->timestep;
    const mf_real ctrl = mf_humanoid_ctrl_cost(p, o->ctrl_cost_weight);
    const mf_real impact = mf_humanoid_contact_cost(p, o->impact_cost_weight, o->impact_cost_range);
    *reward = height - ctrl - impact + 1;
    info = mf_put(info, p->qpos, 2);
    *info++ = p->qpos[2] - p->init_qpos[2];
    info = mf_put_tendons(info, p);
    info[0] = height;
    info[1] = -ctrl;
    info[2] = -impact;
    return 0;
}

MF_FN void humanoid_standup_observe(const humanoid_standup_params *o, const mf_physics *p, mf_real *obs) {
    mf_humanoid_observe(&o->view, p, obs);
}

MF_RESET(humanoid_standup, mf_reset_uniform, reset_noise_scale)

#endif
