/* cartpole.h: a pole stands on a cart, which is pushed left or right so that the pole does not fall.

   The equations and constants of Gymnasium's CartPole-v1 (Barto, Sutton, Anderson 1983, with Euler's method), in double
   as there; tests/envs/test_games.py compares the two step by step. */
#ifndef CARTPOLE_H
#define CARTPOLE_H

#include "fmath.h"
#include "philox.h"

typedef struct {
    int32_t num_agents, max_steps, limit_is_terminal;
} cartpole_params;

typedef struct {
    double x, x_speed, angle, angle_speed; /* m, m/s, rad, rad/s */
    int32_t episode, step, fallen, ended;
} cartpole_state;

typedef int32_t cartpole_action;
enum { cartpole_priorities = 1, cartpole_action_width = 1, cartpole_stats = 0 };

MF_FN void cartpole_prepare(cartpole_params *p) { (void)p; }
MF_FN int64_t cartpole_state_size(const cartpole_params *p) {
    (void)p;
    return (int64_t)(sizeof(cartpole_state) + 63) / 64 * 64;
}
MF_FN int32_t cartpole_num_agents(const cartpole_params *p) { return p->num_agents; }
MF_FN int32_t cartpole_obs_size(const cartpole_params *p) {
    (void)p;
    return 4 * (int32_t)sizeof(float);
}

/* Draws uniformly from -0.05 … 0.05. */
MF_FN double cartpole_small(mf_rng *r) { return ((double)mf_rng_next(r) / 4294967296.0 - 0.5) * 0.1; }

MF_FN void cartpole_reset(const cartpole_params *p, uint8_t *state, uint64_t seed, uint32_t env, int32_t start_step,
                          int32_t lane, int32_t lanes) {
    cartpole_state *s = (cartpole_state *)state;
    mf_rng r;
    (void)p, (void)lane, (void)lanes;
    s->episode++;
    s->step = start_step, s->fallen = 0, s->ended = 0;
    mf_rng_start(&r, seed, env, (uint32_t)s->episode, 0);
    s->x = cartpole_small(&r), s->x_speed = cartpole_small(&r);
    s->angle = cartpole_small(&r), s->angle_speed = cartpole_small(&r);
}

MF_FN int32_t cartpole_pending(const cartpole_params *p, const uint8_t *state) {
    (void)p;
    return ((const cartpole_state *)state)->ended;
}

MF_FN void cartpole_begin(const cartpole_params *p, uint8_t *state, uint64_t seed, uint32_t env) {
    (void)p, (void)seed, (void)env;
    ((cartpole_state *)state)->step++;
}

/* Actions: 0 pushes to the left, 1 to the right. */
MF_FN void cartpole_act(const cartpole_params *p, uint8_t *state, int32_t priority, int32_t turn,
                        const cartpole_action *actions) {
    const double gravity = 9.8, cart = 1.0, pole = 0.1, mass = pole + cart, half = 0.5, moment = pole * half;
    const double tau = 0.02; /* seconds of a step */
    cartpole_state *s = (cartpole_state *)state;
    const double force = actions[turn] == 1 ? 10.0 : -10.0;
    const double c = mf_cos(s->angle), n = mf_sin(s->angle);
    const double push = (force + moment * (s->angle_speed * s->angle_speed) * n) / mass;
    const double angle_gain = (gravity * n - c * push) / (half * (4.0 / 3.0 - pole * (c * c) / mass));
    const double x_gain = push - moment * angle_gain * c / mass;
    (void)p, (void)priority;
    s->x += tau * s->x_speed;
    s->x_speed += tau * x_gain;
    s->angle += tau * s->angle_speed;
    s->angle_speed += tau * angle_gain;
}

MF_FN void cartpole_finish(const cartpole_params *p, uint8_t *state, float *reward, uint8_t *terminal,
                           uint8_t *truncation, uint8_t *mask, float *stats) {
    const double far = 2.4, tilted = 12 * 2 * 3.14159265358979323846 / 360;
    cartpole_state *s = (cartpole_state *)state;
    const int32_t late = s->step >= p->max_steps;
    (void)stats;
    s->fallen = s->x < -far || s->x > far || s->angle < -tilted || s->angle > tilted;
    s->ended = s->fallen || late;
    reward[0] = 1.0f;
    terminal[0] = (uint8_t)(s->fallen || (late && p->limit_is_terminal));
    truncation[0] = (uint8_t)(s->ended && !terminal[0]);
    mask[0] = (uint8_t)!s->ended;
}

MF_FN void cartpole_observe(const cartpole_params *p, const uint8_t *state, int32_t agent, uint8_t *out, int32_t lane,
                            int32_t lanes) {
    const cartpole_state *s = (const cartpole_state *)state;
    float *numbers = (float *)out;
    (void)p, (void)agent, (void)lane, (void)lanes;
    numbers[0] = (float)s->x, numbers[1] = (float)s->x_speed;
    numbers[2] = (float)s->angle, numbers[3] = (float)s->angle_speed;
}

#endif
