/* snake.h: a snake on a board of size × size cells grows by one cell for each food that it eats (reward 1). It dies at
   a wall or on its own body (death_reward), and wins when it fills the board. */
#ifndef SNAKE_H
#define SNAKE_H

#include "philox.h"

enum { SNAKE_CELLS = 256, SNAKE_START = 3 }; /* cells of the largest board; the length at the start */

typedef struct {
    int32_t num_agents, max_steps, limit_is_terminal;
    int32_t size;
    float death_reward;
    int32_t cells; /* size * size */
} snake_params;

typedef struct {
    uint64_t seed; /* of the run, and the environment's number: what snake_feed draws with */
    uint32_t env;
    int32_t episode, step, over, ended; /* over: dead, or the board is full */
    int32_t head, heading, length, food, eaten;
    float reward;
    uint16_t life[SNAKE_CELLS]; /* steps until the body leaves a cell; 0: it is free */
} snake_state;

typedef int32_t snake_action;
enum { snake_priorities = 1, snake_action_width = 1, snake_stats = 1 };

MF_FN void snake_prepare(snake_params *p) { p->cells = p->size * p->size; }
MF_FN int64_t snake_state_size(const snake_params *p) {
    (void)p;
    return (int64_t)(sizeof(snake_state) + 63) / 64 * 64;
}
MF_FN int32_t snake_num_agents(const snake_params *p) { return p->num_agents; }
MF_FN int32_t snake_obs_size(const snake_params *p) { return 3 * p->cells * (int32_t)sizeof(float); }

/* Puts food on a free cell, each equally likely; -1 if there is none. */
MF_FN void snake_feed(const snake_params *p, snake_state *s) {
    mf_rng r;
    int32_t left;
    s->food = -1;
    if (s->length >= p->cells)
        return;
    mf_rng_start(&r, s->seed, s->env, (uint32_t)s->episode, 1 + (uint32_t)s->eaten);
    left = mf_randbelow(&r, p->cells - s->length);
    for (int32_t cell = 0; cell < p->cells; cell++)
        if (s->life[cell] == 0 && left-- == 0) {
            s->food = cell;
            return;
        }
}

MF_FN void snake_reset(const snake_params *p, uint8_t *state, uint64_t seed, uint32_t env, int32_t start_step,
                       int32_t lane, int32_t lanes) {
    snake_state *s = (snake_state *)state;
    mf_rng r;
    (void)lanes;
    if (lane != 0) /* one lane does it */
        return;
    s->seed = seed, s->env = env;
    s->episode++;
    s->step = start_step, s->over = 0, s->ended = 0, s->eaten = 0, s->reward = 0;
    MF_FILL(s->life, 0, sizeof(s->life));
    /* lies in a row, looking right */
    mf_rng_start(&r, seed, env, (uint32_t)s->episode, 0);
    s->head = mf_randbelow(&r, p->size) * p->size + SNAKE_START - 1;
    s->heading = 1, s->length = SNAKE_START;
    for (int32_t k = 0; k < SNAKE_START; k++)
        s->life[s->head - k] = (uint16_t)(SNAKE_START - k);
    snake_feed(p, s);
}

MF_FN int32_t snake_pending(const snake_params *p, const uint8_t *state) {
    (void)p;
    return ((const snake_state *)state)->ended;
}

MF_FN void snake_begin(const snake_params *p, uint8_t *state, uint64_t seed, uint32_t env) {
    snake_state *s = (snake_state *)state;
    s->step++;
    (void)p, (void)seed, (void)env;
    s->reward = 0;
}

/* Actions: 0 up, 1 right, 2 down, 3 left. Turning back is going on. */
MF_FN void snake_act(const snake_params *p, uint8_t *state, int32_t priority, int32_t turn,
                     const snake_action *actions) {
    snake_state *s = (snake_state *)state;
    const int32_t action = actions[turn] & 3;
    const int32_t heading = action == ((s->heading + 2) & 3) ? s->heading : action;
    const int32_t row = s->head / p->size + (heading == 2) - (heading == 0);
    const int32_t column = s->head % p->size + (heading == 1) - (heading == 3);
    const int32_t next = row * p->size + column;
    const int32_t outside = row < 0 || column < 0 || row >= p->size || column >= p->size;
    (void)priority;
    s->heading = heading;
    if (!outside && next == s->food) {
        s->length++, s->eaten++;
        s->food = -1;
        s->reward = 1.0f;
    } else {
        for (int32_t cell = 0; cell < p->cells; cell++)
            s->life[cell] -= s->life[cell] > 0;
    }
    if (outside || s->life[next] > 0) {
        s->over = 1;
        s->reward = p->death_reward;
        return;
    }
    s->head = next;
    s->life[next] = (uint16_t)s->length;
    s->over = s->length == p->cells;
    if (s->food < 0)
        snake_feed(p, s);
}

MF_FN void snake_finish(const snake_params *p, uint8_t *state, float *reward, uint8_t *terminal, uint8_t *truncation,
                        uint8_t *mask, float *stats) {
    snake_state *s = (snake_state *)state;
    const int32_t late = s->step >= p->max_steps;
    s->ended = s->over || late;
    reward[0] = s->reward;
    terminal[0] = (uint8_t)(s->over || (late && p->limit_is_terminal));
    truncation[0] = (uint8_t)(s->ended && !terminal[0]);
    mask[0] = (uint8_t)!s->ended;
    stats[0] = (float)s->eaten;
}

/* Three planes: the body (its end is 1 / length, its head 1), the head, the food. */
MF_FN void snake_observe(const snake_params *p, const uint8_t *state, int32_t agent, uint8_t *out, int32_t lane,
                         int32_t lanes) {
    const snake_state *s = (const snake_state *)state;
    float *planes = (float *)out;
    (void)agent;
    for (int32_t cell = lane; cell < p->cells; cell += lanes) {
        planes[cell] = (float)s->life[cell] / (float)s->length;
        planes[p->cells + cell] = cell == s->head ? 1.0f : 0.0f;
        planes[2 * p->cells + cell] = cell == s->food ? 1.0f : 0.0f;
    }
}

#endif
