/* A rollout's step of a grid policy (mlp_network.h): bytes and noise to actions, log-probabilities and values.
 *
 * heads.py's ActionHead.sample is the reference in torch.
 */
#ifndef MF_CPU_ACT_H
#define MF_CPU_ACT_H

#include "mlp_network.h"
#include "../../runtime/c/thread_team.h"

enum { MF_PARTS = 4 }; /* parts of a block for each thread: a free thread takes the next */

/* A block of rows: bytes and uniform noise [rows, heads] in; out the bytes, actions [rows, heads], twice,
 * log-probability and value [rows]. noise NULL: values alone. */
typedef struct {
    int rows;
    const uint8_t *obs;
    uint8_t *kept;
    const float *noise;
    int32_t *action, *given;
    float *logprob, *value;
} mf_act_rows;

typedef struct {
    mf_net net;
    int heads, nvec[MF_MOST_HEADS];
    int threads, parts;
    mf_tile *tile; /* one for each thread */
    _Atomic int *taken; /* whether it is in use */
    mf_team team;
    const mf_act_rows *rows;
} mf_actor;

static void mf_actor_free(mf_actor *actor)
{
    mf_team_free(&actor->team);
    for (int i = 0; actor->tile && i < actor->threads; i++)
        mf_tile_free(&actor->tile[i]);
    mf_net_free(&actor->net);
    free(actor->tile);
    free(actor->taken);
    free(actor);
}

static int32_t mf_act_parts(void *of, int32_t lo, int32_t hi);

/* threads: the caller is one of them. NULL: no memory. Set the heads and start its team before use. */
static mf_actor *mf_actor_new(const mf_net *net, int threads, int64_t spin_ns)
{
    mf_actor *actor = calloc(1, sizeof *actor);
    if (!actor)
        return 0;
    actor->net = *net, actor->threads = threads, actor->parts = threads > 1 ? MF_PARTS * threads : 1;
    actor->tile = calloc(threads, sizeof *actor->tile);
    actor->taken = calloc(threads, sizeof *actor->taken);
    int whole = actor->tile && actor->taken && mf_net_make(&actor->net);
    for (int i = 0; whole && i < threads; i++)
        whole = mf_tile_make(&actor->tile[i], &actor->net);
    if (whole && mf_team_make(&actor->team, 1, threads - 1, spin_ns)) {
        mf_team_job(&actor->team, 0, mf_act_parts, actor, actor->parts);
        return actor;
    }
    mf_actor_free(actor);
    return 0;
}

/* Choose by inverse CDF: never past the last choice of positive probability, however close to 1 the noise. */
static void mf_sample(const mf_actor *actor, mf_tile *tile, const mf_act_rows *rows, int at, int n)
{
    const int heads = actor->heads, *nvec = actor->nvec;
    float top[MF_TILE], sum[MF_TILE], bound[MF_TILE] = {0}, below[MF_TILE], logprob[MF_TILE] = {0};
    int32_t chosen[MF_TILE];
    for (int h = 0, first = 0; h < heads; first += nvec[h++]) {
        const mf_row *logit = tile->logit + first;
        mf_softmax(logit, nvec[h], tile->exp, top, sum);
        for (int r = 0; r < n; r++)
            bound[r] = rows->noise[(long)(at + r) * heads + h] * sum[r];
        for (int r = 0; r < MF_TILE; r++)
            below[r] = 0, chosen[r] = 0;
        for (int j = 0; j < nvec[h]; j++)
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

/* Rows [at, end). */
static void mf_act_on(const mf_actor *actor, mf_tile *tile, const mf_act_rows *rows, int at, int end)
{
    const mf_net *net = &actor->net;
    for (; at < end; at += MF_TILE) {
        const int n = end - at < MF_TILE ? end - at : MF_TILE;
        uint8_t *obs = rows->kept + at * net->bytes;
        memcpy(obs, rows->obs + at * net->bytes, n * net->bytes);
        mf_layer_forward(net->layout, obs, net->scale, net->weight[MF_W1], net->weight[MF_B1], tile->h1, net->hidden, 0, n);
        mf_net_forward(net, tile, n);
        mf_logits(net, tile, n);
        if (rows->noise)
            mf_sample(actor, tile, rows, at, n);
        memcpy(rows->value + at, tile->logit[net->outputs - 1], sizeof(float) * n);
    }
}

static int32_t mf_act_parts(void *of, int32_t lo, int32_t hi)
{
    mf_actor *actor = of;
    const long rows = actor->rows->rows;
    int i = 0;
    while (atomic_exchange(&actor->taken[i], 1)) /* there is one for each thread */
        i = (i + 1) % actor->threads;
    mf_act_on(actor, &actor->tile[i], actor->rows, (int)(rows * lo / actor->parts),
              (int)(rows * hi / actor->parts));
    atomic_store(&actor->taken[i], 0);
    return 0;
}

static void mf_act(mf_actor *actor, const mf_act_rows *rows)
{
    actor->rows = rows;
    mf_team_do(&actor->team, 0);
}

#endif
