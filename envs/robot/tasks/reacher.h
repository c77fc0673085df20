/* reacher.h: a planar arm of two links brings its fingertip to a target (Gymnasium's Reacher-v5).

   Reward: −distance to the target − control cost. Never ends by itself; 50 steps. qpos is the two joints, then the
   target's x and y, which are drawn in a disc of radius 0.2. */
#ifndef MF_ROBOT_REACHER_H
#define MF_ROBOT_REACHER_H

#include "kit.h"

typedef struct {
    mf_real reward_dist_weight, reward_control_weight;
    int32_t fingertip, target; /* bodies */
} reacher_params;

enum { reacher_contact_forces = 0 };

MF_KEEP_POSITION(reacher, 0)

MF_FN int32_t reacher_after(const reacher_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                            mf_real *reward, mf_real *info) {
    (void)state;
    info[0] = -mf_distance(p->xpos + 3 * o->fingertip, p->xpos + 3 * o->target) * o->reward_dist_weight;
    info[1] = -mf_action_cost(o->reward_control_weight, action, p->nu);
    *reward = info[0] + info[1];
    return 0;
}

MF_FN void reacher_observe(const reacher_params *o, const mf_physics *p, mf_real *obs) {
    const mf_real *tip = p->xpos + 3 * o->fingertip, *target = p->xpos + 3 * o->target;
    for (int32_t joint = 0; joint < 2; joint++) {
        *obs++ = cos(p->qpos[joint]);
        obs[1] = sin(p->qpos[joint]);
    }
    obs = mf_put(mf_put(obs + 2, p->qpos + 2, p->nq - 2), p->qvel, 2);
    obs[0] = tip[0] - target[0];
    obs[1] = tip[1] - target[1];
}

MF_FN void reacher_reset(const reacher_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) {
    (void)o;
    for (int32_t i = 0; i < p->nq; i++) qpos[i] = p->init_qpos[i] + mf_uniform(rng, -0.1, 0.1);
    mf_real *target = qpos + p->nq - 2;
    do {
        target[0] = mf_uniform(rng, -0.2, 0.2);
        target[1] = mf_uniform(rng, -0.2, 0.2);
    } while (mf_norm(target, 2) >= 0.2);
    for (int32_t i = 0; i < p->nv; i++)
        qvel[i] = i < p->nv - 2 ? p->init_qvel[i] + mf_uniform(rng, -0.005, 0.005) : 0;
}

#endif
