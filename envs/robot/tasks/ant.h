/* ant.h: a torso on four legs walks forward (Gymnasium's Ant-v5).

   Reward: forward velocity of the main body + staying healthy − control cost − contact cost. Unhealthy: a state
   that is not finite, or the torso's height outside its range (ends included). */
#ifndef MF_ROBOT_ANT_H
#define MF_ROBOT_ANT_H

#include "forward.h"

typedef struct {
    mf_real forward_reward_weight, ctrl_cost_weight, contact_cost_weight, healthy_reward;
    mf_real main_body; /* number of a body, as an option */
    mf_real healthy_z_range[2], contact_force_range[2], reset_noise_scale;
    int32_t terminate_when_unhealthy, exclude_current_positions_from_observation, include_cfrc_ext_in_observation;
} ant_params;

enum { ant_contact_forces = 1 };

MF_FN const mf_real *ant_main_body(const ant_params *o, const mf_physics *p) {
    return p->xpos + 3 * (int32_t)o->main_body;
}

MF_FN int32_t ant_healthy(const ant_params *o, const mf_physics *p) {
    for (int32_t i = 0; i < p->nq; i++)
        if (!isfinite(p->qpos[i])) return 0;
    for (int32_t i = 0; i < p->nv; i++)
        if (!isfinite(p->qvel[i])) return 0;
    return o->healthy_z_range[0] <= p->qpos[2] && p->qpos[2] <= o->healthy_z_range[1];
}

/* Σ clipped forces², halved as NumPy halves it. */
static __attribute__((unused)) mf_real ant_sum_forces(const mf_real *force, int32_t n, const mf_real range[2]) {
    mf_real clipped[128];
    if (n > 128) {
        const int32_t half = n / 2 - n / 2 % 8;
        return ant_sum_forces(force, half, range) + ant_sum_forces(force + half, n - half, range);
    }
    for (int32_t i = 0; i < n; i++) clipped[i] = mf_clip(force[i], range[0], range[1]);
    return mf_sum_squares(clipped, n);
}

MF_FN void ant_before(const ant_params *o, const mf_physics *p, mf_task_state *state) {
    mf_put(state->before, ant_main_body(o, p), 2);
}

MF_FN int32_t ant_after(const ant_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                        mf_real *reward, mf_real *info) {
    const mf_real *xy = ant_main_body(o, p);
    const mf_forward step =
        mf_forward_of(p, xy[0], state->before[0], action, o->forward_reward_weight, o->ctrl_cost_weight);
    const int32_t healthy = ant_healthy(o, p);
    const mf_real survive = healthy * o->healthy_reward;
    const mf_real contact =
        o->contact_cost_weight * ant_sum_forces(p->cfrc_ext, 6 * p->nbody, o->contact_force_range);
    *reward = step.forward + survive - (step.ctrl + contact);
    info = mf_put_xy_info(info, p, step, (xy[1] - state->before[1]) / p->dt);
    info[0] = -contact;
    info[1] = survive;
    return !healthy && o->terminate_when_unhealthy;
}

MF_FN void ant_observe(const ant_params *o, const mf_physics *p, mf_real *obs) {
    obs = mf_put_state(p, 2 * o->exclude_current_positions_from_observation, obs);
    if (!o->include_cfrc_ext_in_observation) return;
    for (int32_t i = 6; i < 6 * p->nbody; i++)
        *obs++ = mf_clip(p->cfrc_ext[i], o->contact_force_range[0], o->contact_force_range[1]);
}

MF_RESET(ant, mf_reset_uniform_normal, reset_noise_scale)

#endif
