/* half_cheetah.h: half of a cheetah runs forward in a plane (Gymnasium's HalfCheetah-v5).

   Reward: forward velocity − control cost. Never ends by itself. */
#ifndef MF_ROBOT_HALF_CHEETAH_H
#define MF_ROBOT_HALF_CHEETAH_H

#include "forward.h"

typedef struct {
    mf_forward_params forward;
} half_cheetah_params;

enum { half_cheetah_contact_forces = 0 };

MF_KEEP_POSITION(half_cheetah, 1)

MF_FN int32_t half_cheetah_after(const half_cheetah_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                        mf_real *reward, mf_real *info) {
    const mf_forward step = mf_forward_of(p, p->qpos[0], state->before[0], action, o->forward.forward_reward_weight,
                                          o->forward.ctrl_cost_weight);
    info[0] = p->qpos[0];
    info[1] = step.x_velocity;
    info[2] = step.forward;
    info[3] = -step.ctrl;
    *reward = step.forward - step.ctrl;
    return 0;
}

MF_FN void half_cheetah_observe(const half_cheetah_params *o, const mf_physics *p, mf_real *obs) {
    mf_put_state(p, o->forward.exclude_current_positions_from_observation, obs);
}

MF_RESET(half_cheetah, mf_reset_uniform_normal, forward.reset_noise_scale)

#endif
