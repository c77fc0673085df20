/* hopper.h: a planar robot with one leg hops forward (Gymnasium's Hopper-v5).

   Reward: forward velocity + staying healthy − control cost. Unhealthy: a value of the state behind x and height,
   the height itself or the torso's angle outside its range (ends excluded). */
#ifndef MF_ROBOT_HOPPER_H
#define MF_ROBOT_HOPPER_H

#include "planar.h"

typedef struct {
    mf_planar_params planar;
    mf_real healthy_state_range[2];
} hopper_params;

enum { hopper_contact_forces = 0 };

MF_FN int32_t hopper_healthy(const hopper_params *o, const mf_physics *p) {
    for (int32_t i = 2; i < p->nq + p->nv; i++) {
        const mf_real value = i < p->nq ? p->qpos[i] : p->qvel[i - p->nq];
        if (!(o->healthy_state_range[0] < value && value < o->healthy_state_range[1])) return 0;
    }
    return mf_planar_upright(&o->planar, p);
}

MF_KEEP_POSITION(hopper, 1)

MF_FN int32_t hopper_after(const hopper_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                        mf_real *reward, mf_real *info) {
    return mf_planar_after(&o->planar, p, state, action, hopper_healthy(o, p), reward, info);
}

MF_FN void hopper_observe(const hopper_params *o, const mf_physics *p, mf_real *obs) {
    mf_planar_observe(&o->planar, p, obs);
}

MF_RESET(hopper, mf_reset_uniform, planar.reset_noise_scale)

#endif
