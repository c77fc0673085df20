/* pusher.h: an arm of seven joints pushes a cylinder to a goal (Gymnasium's Pusher-v5).

   Reward: −distance from the cylinder to the goal − distance from the fingertip to the cylinder − control cost. Never
   ends by itself; 100 steps. The last four of qpos are the cylinder's x and y, drawn at least 0.17 from the goal,
   then the goal's, which stays at 0. */
#ifndef MF_ROBOT_PUSHER_H
#define MF_ROBOT_PUSHER_H

#include "kit.h"

enum { PUSHER_JOINTS = 7 };

typedef struct {
    mf_real reward_near_weight, reward_dist_weight, reward_control_weight;
    int32_t tips_arm, object, goal; /* bodies */
} pusher_params;

enum { pusher_contact_forces = 0 };

MF_KEEP_POSITION(pusher, 0)

MF_FN int32_t pusher_after(const pusher_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                           mf_real *reward, mf_real *info) {
    (void)state;
    const mf_real *object = p->xpos + 3 * o->object;
    const mf_real near = -mf_distance(object, p->xpos + 3 * o->tips_arm) * o->reward_near_weight;
    info[0] = -mf_distance(object, p->xpos + 3 * o->goal) * o->reward_dist_weight;
    info[1] = -mf_action_cost(o->reward_control_weight, action, p->nu);
    info[2] = near;
    *reward = info[0] + info[1] + near;
    return 0;
}

MF_FN void pusher_observe(const pusher_params *o, const mf_physics *p, mf_real *obs) {
    obs = mf_put(mf_put(obs, p->qpos, PUSHER_JOINTS), p->qvel, PUSHER_JOINTS);
    obs = mf_put(obs, p->xpos + 3 * o->tips_arm, 3);
    obs = mf_put(obs, p->xpos + 3 * o->object, 3);
    mf_put(obs, p->xpos + 3 * o->goal, 3);
}

MF_FN void pusher_reset(const pusher_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) {
    (void)o;
    mf_put(qpos, p->init_qpos, p->nq);
    mf_real *cylinder = qpos + p->nq - 4, *goal = qpos + p->nq - 2;
    goal[0] = goal[1] = 0;
    do {
        cylinder[0] = mf_uniform(rng, -0.3, 0);
        cylinder[1] = mf_uniform(rng, -0.2, 0.2);
    } while (mf_norm(cylinder, 2) <= 0.17);
    for (int32_t i = 0; i < p->nv; i++)
        qvel[i] = i < p->nv - 4 ? p->init_qvel[i] + mf_uniform(rng, -0.005, 0.005) : 0;
}

#endif
