/* walker2d.h: a planar robot with two legs walks forward (Gymnasium's Walker2d-v5).

   Reward: forward velocity + staying healthy − control cost. Unhealthy: the torso's height or angle outside its
   range (ends excluded). */
#ifndef MF_ROBOT_WALKER2D_H
#define MF_ROBOT_WALKER2D_H

#include "planar.h"

typedef struct {
    mf_planar_params planar;
} walker2d_params;

enum { walker2d_contact_forces = 0 };

MF_KEEP_POSITION(walker2d, 1)

MF_FN int32_t walker2d_after(const walker2d_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                        mf_real *reward, mf_real *info) {
    return mf_planar_after(&o->planar, p, state, action, mf_planar_upright(&o->planar, p), reward, info);
}

MF_FN void walker2d_observe(const walker2d_params *o, const mf_physics *p, mf_real *obs) {
    mf_planar_observe(&o->planar, p, obs);
}

MF_RESET(walker2d, mf_reset_uniform, planar.reset_noise_scale)

#endif
