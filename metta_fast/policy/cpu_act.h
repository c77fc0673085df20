/* cpu_act.h: a rollout's step of a grid policy (cpu_grid.h): bytes and noise to actions, log-probabilities and values.
 *
 * heads.py's ActionHead.sample is the same in torch, and what is right.
 */
#ifndef MF_CPU_ACT_H
#define MF_CPU_ACT_H

#include "cpu_grid.h"

typedef struct {
    mf_grid_net net;
    int slots;
    mf_grid_tile *tile; /* one for each slot */
} mf_actor;

/* What a block of rows has: bytes and uniform noise [rows, heads] in; out actions [rows, heads], twice, log-probability
 * and value [rows]. noise NULL: values alone. */
typedef struct {
    int rows;
    const uint8_t *obs;
    const float *noise;
    int32_t *action, *given;
    float *logprob, *value;
} mf_act_rows;

static void mf_actor_free(mf_actor *actor)
{
    for (int i = 0; actor->tile && i < actor->slots; i++)
        mf_grid_tile_free(&actor->tile[i]);
    mf_grid_net_free(&actor->net);
    free(actor->tile);
    free(actor);
}

/* NULL: no memory. */
static mf_actor *mf_actor_new(const mf_grid_net *net, int slots)
{
    mf_actor *actor = calloc(1, sizeof *actor);
    if (!actor)
        return 0;
    actor->net = *net, actor->slots = slots;
    actor->tile = calloc(slots, sizeof *actor->tile);
    int whole = actor->tile && mf_grid_net_make(&actor->net);
    for (int i = 0; whole && i < slots; i++)
        whole = mf_grid_tile_make(&actor->tile[i], &actor->net);
    if (whole)
        return actor;
    mf_actor_free(actor);
    return 0;
}

/* Choose by inverse CDF: never past the last choice of positive probability, however close to 1 the noise. */
static void mf_sample(const mf_grid_net *net, mf_grid_tile *tile, const mf_act_rows *rows, int at, int n)
{
    const int heads = net->heads;
    float top[MF_TILE], sum[MF_TILE], bound[MF_TILE] = {0}, below[MF_TILE], logprob[MF_TILE] = {0};
    int32_t chosen[MF_TILE];
    for (int h = 0, first = 0; h < heads; first += net->nvec[h++]) {
        const mf_row *logit = tile->logit + first;
        mf_softmax(logit, net->nvec[h], tile->exp, top, sum);
        for (int r = 0; r < n; r++)
            bound[r] = rows->noise[(long)(at + r) * heads + h] * sum[r];
        for (int r = 0; r < MF_TILE; r++)
            below[r] = 0, chosen[r] = 0;
        for (int j = 0; j < net->nvec[h]; j++)
            for (int r = 0; r < MF_TILE; r++) {
                below[r] += tile->exp[j][r];
                chosen[r] += (below[r] <= bound[r]) & (below[r] < sum[r]);
            }
        for (int r = 0; r < n; r++) {
            logprob[r] += logit[chosen[r]][r] - (top[r] + logf(sum[r]));
            rows->action[(long)(at + r) * heads + h] = rows->given[(long)(at + r) * heads + h] = chosen[r];
        }
    }
    memcpy(rows->logprob + at, logprob, sizeof(float) * n);
}

/* Slot i's share of the rows. */
static void mf_act(mf_actor *actor, const mf_act_rows *rows, int i)
{
    const mf_grid_net *net = &actor->net;
    mf_grid_tile *tile = &actor->tile[i];
    const int end = (int)((long)rows->rows * (i + 1) / actor->slots);
    for (int at = (int)((long)rows->rows * i / actor->slots); at < end; at += MF_TILE) {
        const int n = end - at < MF_TILE ? end - at : MF_TILE;
        mf_layer_forward(net->layout, rows->obs + at * net->bytes, net->scale, net->w1, net->b1, tile->h1, net->hidden,
                         0, n);
        mf_grid_forward(net, tile, n);
        if (rows->noise)
            mf_sample(net, tile, rows, at, n);
        memcpy(rows->value + at, tile->logit[net->outputs - 1], sizeof(float) * n);
    }
}

#endif
