/* lift_cube.h: an arm of six joints with a parallel gripper lifts a cube off a table.

   Actions: speeds of the six joints, and of the fingers' set point (> 0: they close). Grasped: the pads of both fingers
   press the cube from opposite sides. Lifted: grasped, with the cube's centre at least lift_height above the table;
   `success` is 1 while it has been lifted for hold_steps steps in a row, so that its value at an episode's end is
   whether the last hold_steps steps were such. Reward: near the cube + fingers closing around it and grasped + height
   while grasped + lifted − control cost. Never ends by itself.

   A cube starts anywhere in a square of side `area` with any yaw. A `curriculum` share of the episodes that are not for
   evaluation starts with the cube between the fingers, above the table. */
#ifndef MF_ROBOT_LIFT_CUBE_H
#define MF_ROBOT_LIFT_CUBE_H

#include "kit.h"

enum { LIFT_ARM = 6, LIFT_FINGERS = 2, LIFT_CUBE = 8, LIFT_SPEED = 8, LIFT_NEAR = 5 };
#define LIFT_HALF 0.02f    /* half of the cube's side */
#define LIFT_PRESSED 0.2f  /* the least force of a pad, in newtons */
#define LIFT_PI 3.14159265358979f

typedef struct {
    mf_real reach_weight, grasp_weight, height_weight, lifted_weight, ctrl_cost_weight;
    mf_real lift_height, hold_steps, area, curriculum, reset_noise_scale;
    int32_t hand, cube;              /* bodies */
    int32_t tip;                     /* site between the pads */
    int32_t left_touch, right_touch; /* sensors: number of contacts, force in the world's frame */
} lift_cube_params;

enum { lift_cube_contact_forces = 0 };

/* out = the vector v of the world in the frame of the body with orientation q (w, x, y, z). */
MF_FN void lift_cube_turn_back(const mf_real *q, const mf_real *v, mf_real *out) {
    const mf_real t[3] = {2 * (q[3] * v[1] - q[2] * v[2]), 2 * (q[1] * v[2] - q[3] * v[0]),
                          2 * (q[2] * v[0] - q[1] * v[1])};
    out[0] = v[0] + q[0] * t[0] + (q[3] * t[1] - q[2] * t[2]);
    out[1] = v[1] + q[0] * t[1] + (q[1] * t[2] - q[3] * t[0]);
    out[2] = v[2] + q[0] * t[2] + (q[2] * t[0] - q[1] * t[1]);
}

/* out = the unit vector along axis 0, 1 or 2 of the body with orientation q, in the world's frame. */
MF_FN void lift_cube_axis(const mf_real *q, int32_t axis, mf_real *out) {
    const int32_t j = (axis + 1) % 3, k = (axis + 2) % 3;
    const mf_real w = q[0], a = q[1 + axis], b = q[1 + j], c = q[1 + k];
    out[axis] = 1 - 2 * (b * b + c * c);
    out[j] = 2 * (a * b + w * c);
    out[k] = 2 * (a * c - w * b);
}

/* The force of a pad on the cube along the direction in which the fingers close, in newtons. */
MF_FN mf_real lift_cube_press(const lift_cube_params *o, const mf_physics *p, int32_t touch) {
    mf_real force[3];
    lift_cube_turn_back(p->xquat + 4 * o->hand, p->sensordata + touch + 1, force);
    return p->sensordata[touch] > 0 ? force[1] : 0;
}

MF_FN int32_t lift_cube_grasped(const lift_cube_params *o, const mf_physics *p) {
    const mf_real left = lift_cube_press(o, p, o->left_touch), right = lift_cube_press(o, p, o->right_touch);
    return left * right < 0 && fabs(left) > LIFT_PRESSED && fabs(right) > LIFT_PRESSED;
}

MF_FN int32_t lift_cube_lifted(const lift_cube_params *o, const mf_physics *p) {
    return p->xpos[3 * o->cube + 2] >= o->lift_height && lift_cube_grasped(o, p);
}

/* state->before[0]: steps in a row with the cube lifted. */
MF_FN void lift_cube_before(const lift_cube_params *o, const mf_physics *p, mf_task_state *state) {
    if (!lift_cube_lifted(o, p)) state->before[0] = 0; /* as at every start */
}

MF_FN int32_t lift_cube_after(const lift_cube_params *o, const mf_physics *p, mf_task_state *state, const float *action,
                              mf_real *reward, mf_real *info) {
    const mf_real *cube = p->xpos + 3 * o->cube;
    const mf_real distance = mf_distance(p->site_xpos + 3 * o->tip, cube), height = cube[2];
    const int32_t grasped = lift_cube_grasped(o, p), lifted = lift_cube_lifted(o, p);
    const mf_real share = mf_clip((height - LIFT_HALF) / (1.3f * o->lift_height - LIFT_HALF), 0, 1);
    /* Fingers that close around the cube: without this part some seeds hover over it for ever. */
    const mf_real closed = mf_clip(p->qpos[LIFT_ARM] / LIFT_HALF, 0, 1) * mf_clip(1 - distance / LIFT_HALF, 0, 1);
    state->before[0] = lifted ? state->before[0] + 1 : 0;
    info[0] = o->reach_weight * (1 - tanh(LIFT_NEAR * distance));
    info[1] = o->grasp_weight * (0.5f * grasped + 0.5f * closed);
    info[2] = o->height_weight * grasped * share;
    info[3] = o->lifted_weight * lifted;
    info[4] = -o->ctrl_cost_weight * mf_sum_squares_float(action, LIFT_ARM);
    *reward = info[0] + info[1] + info[2] + info[3] + info[4];
    info[5] = distance;
    info[6] = grasped;
    info[7] = height;
    info[8] = state->before[0] >= o->hold_steps;
    return 0;
}

MF_FN void lift_cube_observe(const lift_cube_params *o, const mf_physics *p, mf_real *obs) {
    const mf_real *tip = p->site_xpos + 3 * o->tip, *cube = p->xpos + 3 * o->cube, *hand = p->xquat + 4 * o->hand;
    const mf_real apart[3] = {cube[0] - tip[0], cube[1] - tip[1], cube[2] - tip[2]};
    obs = mf_put(mf_put(obs, p->qpos, LIFT_CUBE), p->qvel, LIFT_SPEED);
    *obs++ = p->act[0] - p->qpos[LIFT_ARM]; /* how hard the fingers are to close */
    obs = mf_put(mf_put(obs, tip, 3), cube, 3);
    lift_cube_turn_back(hand, apart, obs);
    obs += 3;
    for (int32_t axis = 0; axis < 3; axis += 2) {
        mf_real side[3];
        lift_cube_axis(p->xquat + 4 * o->cube, axis, side);
        lift_cube_turn_back(hand, side, obs);
        obs += 3;
    }
    obs = mf_put(obs, p->qvel + LIFT_SPEED, 6);
    *obs++ = tanh(0.2f * lift_cube_press(o, p, o->left_touch));
    *obs = tanh(0.2f * lift_cube_press(o, p, o->right_touch));
}

MF_FN void lift_cube_reset(const lift_cube_params *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) {
    const int32_t easy = !p->evaluation && mf_uniform(rng, 0, 1) < o->curriculum;
    mf_real *cube = qpos + LIFT_CUBE;
    mf_put(qpos, p->init_qpos, p->nq);
    mf_put(qvel, p->init_qvel, p->nv);
    const mf_real x = mf_uniform(rng, -0.5, 0.5), y = mf_uniform(rng, -0.5, 0.5);
    const mf_real yaw = mf_uniform(rng, -LIFT_PI, LIFT_PI);
    for (int32_t i = 0; i < LIFT_ARM; i++) {
        const mf_real noise = mf_uniform(rng, -o->reset_noise_scale, o->reset_noise_scale);
        qpos[i] += easy ? 0 : noise;
    }
    for (int32_t i = 0; i < LIFT_FINGERS; i++) qpos[LIFT_ARM + i] = easy ? LIFT_HALF : 0;
    if (easy) {
        cube[2] = 0.2f;
        return;
    }
    cube[0] += o->area * x;
    cube[1] += o->area * y;
    cube[3] = cos(yaw / 2);
    cube[6] = sin(yaw / 2);
}

#endif
