/* swimmer.h: a chain of three links swims forward in a plane (Gymnasium's Swimmer-v5).

   Reward: forward velocity − control cost. Never ends by itself. */
#ifndef MF_ROBOT_SWIMMER_H
#define MF_ROBOT_SWIMMER_H

#include "forward.h"

typedef struct {
    mf_forward_params forward;
} swimmer_params;

enum { swimmer_contact_forces = 0 };

MF_KEEP_POSITION(swimmer, 2)

MF_FN int32_t swimmer_after(const swimmer_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                        mf_real *reward, mf_real *info) {
    const mf_forward step = mf_forward_of(p, p->qpos[0], state->before[0], action, o->forward.forward_reward_weight,
                                          o->forward.ctrl_cost_weight);
    mf_put_xy_info(info, p, step, (p->qpos[1] - state->before[1]) / p->dt);
    *reward = step.forward - step.ctrl;
    return 0;
}

MF_FN void swimmer_observe(const swimmer_params *o, const mf_physics *p, mf_real *obs) {
    mf_put_state(p, 2 * o->forward.exclude_current_positions_from_observation, obs);
}

MF_RESET(swimmer, mf_reset_uniform, forward.reset_noise_scale)

#endif
