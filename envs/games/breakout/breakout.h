/* breakout.h: a ball knocks bricks out of a wall of 6 rows of 18, and a paddle keeps it in play. Five lives; a second
   wall follows the first, and the game is won when that is gone (score 864).

   The points of the rows from the top: 7, 7, 4, 4, 1, 1. Positions are whole numbers in 1/16 of a pixel, so that every
   machine plays the same game. A step of the environment is `repeat` frames. */
#ifndef BREAKOUT_H
#define BREAKOUT_H

#include "philox.h"

enum {
    BREAKOUT_ROWS = 6,
    BREAKOUT_COLUMNS = 18,
    BREAKOUT_BRICKS = 108,
    BREAKOUT_PIXEL = 16,
    BREAKOUT_WIDE = 16 * 16,    /* of a brick */
    BREAKOUT_HIGH = 6 * 16,     /* of a brick */
    BREAKOUT_TOP = 30 * 16,     /* of the wall */
    BREAKOUT_FIELD_W = 288 * 16,
    BREAKOUT_FIELD_H = 200 * 16,
    BREAKOUT_PADDLE_Y = 188 * 16,
    BREAKOUT_PADDLE_W = 36 * 16,
    BREAKOUT_PADDLE_V = 4 * 16, /* of the paddle, a frame */
    BREAKOUT_BALL = 4 * 16,     /* its side */
    BREAKOUT_WALLS = 2
};

typedef struct {
    int32_t num_agents, max_steps, limit_is_terminal;
    int32_t repeat, lives;
} breakout_params;

typedef struct {
    uint64_t seed;
    uint32_t env;
    int32_t episode, step, over, ended; /* over: no life is left, or both walls are gone */
    int32_t paddle, x, y, vx, vy;       /* the left upper corners; the ball's way in a frame */
    int32_t served, lives, hits, walls, score, bricks, reward;
    uint8_t brick[BREAKOUT_BRICKS]; /* 1: there */
} breakout_state;

typedef int32_t breakout_action;
enum { breakout_priorities = 1, breakout_action_width = 1, breakout_stats = 2 };

/* Points of a brick, by its row from the top. */
MF_FN int32_t breakout_points(int32_t row) { return row < 2 ? 7 : row < 4 ? 4 : 1; }

MF_FN void breakout_prepare(breakout_params *p) { (void)p; }
MF_FN int64_t breakout_state_size(const breakout_params *p) {
    (void)p;
    return (int64_t)(sizeof(breakout_state) + 63) / 64 * 64;
}
MF_FN int32_t breakout_num_agents(const breakout_params *p) { return p->num_agents; }
MF_FN int32_t breakout_obs_size(const breakout_params *p) {
    (void)p;
    return (BREAKOUT_BRICKS + 9) * (int32_t)sizeof(float);
}

/* Serves the ball from below the wall, downwards, at a drawn place and to a drawn side. */
MF_FN void breakout_serve(breakout_state *s) {
    mf_rng r;
    mf_rng_start(&r, s->seed, s->env, (uint32_t)s->episode, (uint32_t)s->served);
    s->served++;
    s->x = mf_randbelow(&r, BREAKOUT_FIELD_W - BREAKOUT_BALL);
    s->y = BREAKOUT_TOP + BREAKOUT_ROWS * BREAKOUT_HIGH + 20 * BREAKOUT_PIXEL;
    s->vx = mf_randbelow(&r, 2) ? 24 : -24;
    s->vy = 32;
    s->hits = 0;
}

MF_FN void breakout_reset(const breakout_params *p, uint8_t *state, uint64_t seed, uint32_t env, int32_t start_step,
                          int32_t lane, int32_t lanes) {
    breakout_state *s = (breakout_state *)state;
    (void)lanes;
    if (lane != 0) /* one lane does it */
        return;
    s->seed = seed, s->env = env;
    s->episode++;
    s->step = start_step, s->over = 0, s->ended = 0;
    s->paddle = (BREAKOUT_FIELD_W - BREAKOUT_PADDLE_W) / 2;
    s->lives = p->lives, s->walls = 0, s->score = 0, s->bricks = 0, s->served = 0, s->reward = 0;
    MF_FILL(s->brick, 1, BREAKOUT_BRICKS);
    breakout_serve(s);
}

MF_FN int32_t breakout_pending(const breakout_params *p, const uint8_t *state) {
    (void)p;
    return ((const breakout_state *)state)->ended;
}

MF_FN void breakout_begin(const breakout_params *p, uint8_t *state, uint64_t seed, uint32_t env) {
    breakout_state *s = (breakout_state *)state;
    (void)p, (void)seed, (void)env;
    s->step++;
    s->reward = 0;
}

/* Takes the brick at a point of the field. Returns 1 if there was one. */
MF_FN int32_t breakout_take(breakout_state *s, int32_t x, int32_t y) {
    const int32_t row = (y - BREAKOUT_TOP) / BREAKOUT_HIGH, column = x / BREAKOUT_WIDE;
    if (y < BREAKOUT_TOP || row >= BREAKOUT_ROWS || x < 0 || column >= BREAKOUT_COLUMNS)
        return 0;
    if (!s->brick[row * BREAKOUT_COLUMNS + column])
        return 0;
    s->brick[row * BREAKOUT_COLUMNS + column] = 0;
    s->bricks++;
    s->reward += breakout_points(row), s->score += breakout_points(row);
    return 1;
}

/* Takes bricks under the corners of the ball at (x, y). Returns 1 if there were any. */
MF_FN int32_t breakout_touch(breakout_state *s, int32_t x, int32_t y) {
    const int32_t far = BREAKOUT_BALL - 1;
    int32_t hit = breakout_take(s, x, y);
    hit |= breakout_take(s, x + far, y);
    hit |= breakout_take(s, x, y + far);
    return hit | breakout_take(s, x + far, y + far);
}

/* Sets the ball's way after the paddle: steeper from its middle, and faster after 4 and 12 hits, as in the arcade. */
MF_FN void breakout_bounce(breakout_state *s) {
    const int32_t middle = s->x + BREAKOUT_BALL / 2 - (s->paddle + BREAKOUT_PADDLE_W / 2);
    const int32_t speed = s->hits < 4 ? 32 : s->hits < 12 ? 40 : 48;
    int32_t across = middle * 48 / (BREAKOUT_PADDLE_W / 2);
    s->hits++;
    across = across > 48 ? 48 : across < -48 ? -48 : across;
    if (across > -4 && across < 4) /* never straight up, for it would come back for ever */
        across = s->vx < 0 ? -4 : 4;
    s->vx = across;
    s->vy = -speed;
}

/* One frame of the ball. */
MF_FN void breakout_frame(const breakout_params *p, breakout_state *s) {
    int32_t x = s->x + s->vx, y;
    if (x < 0 || x > BREAKOUT_FIELD_W - BREAKOUT_BALL || breakout_touch(s, x, s->y)) {
        s->vx = -s->vx;
        x = s->x;
    }
    y = s->y + s->vy;
    if (y < 0 || breakout_touch(s, x, y)) {
        s->vy = -s->vy;
        y = s->y;
    }
    s->x = x;
    if (s->vy > 0 && s->y + BREAKOUT_BALL <= BREAKOUT_PADDLE_Y && y + BREAKOUT_BALL > BREAKOUT_PADDLE_Y &&
        x + BREAKOUT_BALL > s->paddle && x < s->paddle + BREAKOUT_PADDLE_W) {
        y = BREAKOUT_PADDLE_Y - BREAKOUT_BALL;
        breakout_bounce(s);
    }
    s->y = y;
    if (y > BREAKOUT_FIELD_H) {
        s->lives--;
        s->over = s->lives == 0;
        breakout_serve(s);
    }
    if (s->bricks == (s->walls + 1) * BREAKOUT_BRICKS) {
        s->walls++;
        s->over = s->walls == BREAKOUT_WALLS;
        MF_FILL(s->brick, s->over ? 0 : 1, BREAKOUT_BRICKS);
        breakout_serve(s);
    }
    (void)p;
}

/* Actions: 0 stays, 1 goes left, 2 goes right. */
MF_FN void breakout_act(const breakout_params *p, uint8_t *state, int32_t priority, int32_t turn,
                        const breakout_action *actions) {
    breakout_state *s = (breakout_state *)state;
    const int32_t way = (actions[turn] == 2) - (actions[turn] == 1), right = BREAKOUT_FIELD_W - BREAKOUT_PADDLE_W;
    (void)priority;
    for (int32_t frame = 0; frame < p->repeat && !s->over; frame++) {
        s->paddle += way * BREAKOUT_PADDLE_V;
        s->paddle = s->paddle < 0 ? 0 : mf_min(s->paddle, right);
        breakout_frame(p, s);
    }
}

MF_FN void breakout_finish(const breakout_params *p, uint8_t *state, float *reward, uint8_t *terminal,
                           uint8_t *truncation, uint8_t *mask, float *stats) {
    breakout_state *s = (breakout_state *)state;
    const int32_t late = s->step >= p->max_steps;
    s->ended = s->over || late;
    reward[0] = (float)s->reward;
    terminal[0] = (uint8_t)(s->over || (late && p->limit_is_terminal));
    truncation[0] = (uint8_t)(s->ended && !terminal[0]);
    mask[0] = (uint8_t)!s->ended;
    stats[0] = (float)s->score, stats[1] = (float)s->bricks;
}

/* Paddle, ball, its way, how far the ball is from the paddle, lives, hits, walls; then the bricks. */
MF_FN void breakout_observe(const breakout_params *p, const uint8_t *state, int32_t agent, uint8_t *out, int32_t lane,
                            int32_t lanes) {
    const breakout_state *s = (const breakout_state *)state;
    float *numbers = (float *)out;
    (void)agent;
    if (lane == 0) {
        numbers[0] = (float)s->paddle / BREAKOUT_FIELD_W;
        numbers[1] = (float)s->x / BREAKOUT_FIELD_W;
        numbers[2] = (float)s->y / BREAKOUT_FIELD_H;
        numbers[3] = (float)s->vx / 48;
        numbers[4] = (float)s->vy / 48;
        numbers[5] = (float)(s->x + BREAKOUT_BALL / 2 - s->paddle - BREAKOUT_PADDLE_W / 2) / BREAKOUT_PADDLE_W;
        numbers[6] = (float)s->lives / (float)p->lives;
        numbers[7] = (float)mf_min(s->hits, 12) / 12;
        numbers[8] = (float)s->walls;
    }
    for (int32_t k = lane; k < BREAKOUT_BRICKS; k += lanes)
        numbers[9 + k] = s->brick[k];
}

#endif
