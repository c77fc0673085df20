/* A pass of PPO's update for a grid policy (cpu_grid.h) on several threads. Of each minibatch
 *
 *   each slot, its share of the rows:    tiles of  bytes ─► network ─► loss and its gradient ─► backward
 *   each slot, its share of the weights: gradients of all slots added up;  then, once their norm is known, Adam
 *
 * A slot has gradients of its own, so that what comes out depends on their number alone, not on the threads' order.
 * grid_update.py is the door; learner.py and loss.py are the same in torch, and what is right.
 */
#ifndef MF_GRID_UPDATE_H
#define MF_GRID_UPDATE_H

#include "../../../policy/fused_act/grid_network.h"
#include "../../../runtime/c/thread_team.h"
#include "ppo_loss.h"

enum { MF_W1, MF_B1, MF_W2, MF_B2, MF_W3, MF_B3, MF_TENSORS };

/* A tensor of `size` numbers with Adam's moments; its gradient begins `at` floats into each slot's. */
typedef struct {
    float *weight, *first, *second;
    long size, at;
} mf_tensor;

typedef struct {
    mf_rows rows;
    const uint8_t *obs;
    const int32_t *action; /* [rows, heads] */
} mf_grid_rollout;

/* What one thread works with. The pairs of a tile's row r are [start[r], start[r + 1]) of column and value. */
typedef struct {
    mf_grid_tile tile;
    mf_pairs pairs;
    int32_t *column, start[MF_TILE + 1];
    float *value, *grad;
    int64_t kept[MF_TILE];
    double stats[MF_CLIPPED + 1], squares;
} mf_slot;

typedef struct {
    mf_grid_net net;
    mf_tensor tensor[MF_TENSORS];
    long floats; /* of a slot's gradients */
    int slots;
    mf_slot *slot;
    mf_team team;
    /* of the pass */
    const mf_grid_rollout *from;
    const mf_settings *settings;
    /* of the minibatch: its unmasked rows and their number, how advantages are scaled, the step to take */
    int64_t *kept;
    int n;
    mf_scale scale;
    mf_adam adam;
} mf_grid_update;

enum { MF_JOB_ROWS, MF_JOB_SUM, MF_JOB_STEP, MF_JOBS };

static void mf_grid_update_free(mf_grid_update *u)
{
    mf_team_free(&u->team);
    for (int i = 0; u->slot && i < u->slots; i++) {
        mf_grid_tile_free(&u->slot[i].tile);
        free(u->slot[i].column);
        free(u->slot[i].value);
        free(u->slot[i].grad);
    }
    mf_grid_net_free(&u->net);
    free(u->slot);
    free(u->kept);
    free(u);
}

static int32_t mf_grid_rows(void *update, int32_t lo, int32_t hi);
static int32_t mf_grid_sum(void *update, int32_t lo, int32_t hi);
static int32_t mf_grid_step(void *update, int32_t lo, int32_t hi);

/* sizes: of the six tensors; net: its sizes; slots: as many threads, the caller one of them; most: rows of a minibatch.
 * NULL: no memory. Start its team before use. */
static mf_grid_update *mf_grid_update_new(const mf_grid_net *net, const long *sizes, int slots, int64_t spin_ns, int most)
{
    mf_grid_update *u = calloc(1, sizeof *u);
    if (!u)
        return 0;
    u->net = *net, u->slots = slots;
    for (int i = 0; i < MF_TENSORS; i++) {
        u->tensor[i].size = sizes[i], u->tensor[i].at = u->floats;
        u->floats += (sizes[i] + 15) / 16 * 16;
    }
    u->kept = malloc(sizeof(int64_t) * most);
    u->slot = calloc(slots, sizeof *u->slot);
    int whole = u->kept && u->slot && mf_grid_net_make(&u->net);
    for (int i = 0; whole && i < slots; i++) {
        mf_slot *slot = &u->slot[i];
        slot->column = malloc(sizeof(int32_t) * MF_TILE * MF_MAX_PAIRS);
        slot->value = malloc(sizeof(float) * MF_TILE * MF_MAX_PAIRS);
        slot->grad = mf_floats(u->floats);
        whole = slot->column && slot->value && slot->grad && mf_grid_tile_make(&slot->tile, &u->net);
    }
    if (!whole || !mf_team_make(&u->team, MF_JOBS, slots - 1, spin_ns)) {
        mf_grid_update_free(u);
        return 0;
    }
    const mf_job_fn work[MF_JOBS] = {mf_grid_rows, mf_grid_sum, mf_grid_step};
    for (int j = 0; j < MF_JOBS; j++)
        mf_team_job(&u->team, j, work[j], u, slots);
    return u;
}

/* ---- the rows ---- */

/* Begin a minibatch of `count` rows: its unmasked ones, their advantages' scale, the weights as they are now. */
static void mf_grid_begin(mf_grid_update *u, const int64_t *rows, int count)
{
    u->n = 0;
    for (int b = 0; b < count; b++)
        if (u->from->rows.mask[rows[b]])
            u->kept[u->n++] = rows[b];
    u->scale = mf_advantage_scale(&u->from->rows, u->settings, u->kept, u->n);
    mf_grid_net_pack(&u->net);
}

enum { MF_AHEAD = 2 }; /* rows: their bytes are asked for so early, which lie anywhere in the rollout */

/* The first layer of n rows; `more` of the list can be read. */
static void mf_grid_first(const mf_grid_net *net, mf_slot *slot, const uint8_t *obs, const int64_t *row, int n, int more)
{
    ptrdiff_t bytes;
    const mf_decoder decode = mf_layout(net->layout, &bytes);
    mf_pairs *p = &slot->pairs;
    slot->start[0] = 0;
    for (int r = 0; r < n; r++) {
        const int32_t at = slot->start[r];
        if (r + MF_AHEAD < more)
            for (long line = 0; line < bytes; line += 64)
                __builtin_prefetch(obs + row[r + MF_AHEAD] * bytes + line);
        decode(p, obs + row[r] * bytes, net->scale);
        memcpy(slot->column + at, p->column, sizeof(int32_t) * p->count);
        memcpy(slot->value + at, p->value, sizeof(float) * p->count);
        slot->start[r + 1] = at + p->count;
        mf_gather(p->count, p->column, p->value, net->w1, net->b1, slot->tile.h1 + (long)r * net->hidden, net->hidden);
    }
}

/* The tile's loss: statistics, and the gradients of its outputs into tile.out. */
static void mf_grid_loss(const mf_grid_update *u, mf_slot *slot, const int64_t *row, int n)
{
    const mf_grid_net *net = &u->net;
    const mf_grid_rollout *from = u->from;
    const mf_settings *s = u->settings;
    const double each = 1.0 / u->n;
    const float bonus = (float)(s->entropy_coef * each);
    mf_row *logit = slot->tile.logit, *e = slot->tile.exp, top, log_sum[MF_MOST_HEADS], sum, entropy[MF_MOST_HEADS];
    float logprob[MF_TILE] = {0}, by_logprob[MF_TILE] = {0}, by_value[MF_TILE];
    for (int h = 0, at = 0; h < net->heads; at += net->nvec[h++]) {
        mf_softmax(logit + at, net->nvec[h], e + at, top, sum);
        for (int r = 0; r < MF_TILE; r++)
            log_sum[h][r] = top[r] + logf(sum[r]), sum[r] = 1.0f / sum[r], entropy[h][r] = 0;
        for (int j = at; j < at + net->nvec[h]; j++)
            for (int r = 0; r < MF_TILE; r++) {
                e[j][r] *= sum[r];              /* the probability */
                logit[j][r] -= log_sum[h][r];   /* and its logarithm */
                entropy[h][r] -= e[j][r] * logit[j][r];
            }
        for (int r = 0; r < n; r++) {
            slot->stats[MF_ENTROPY] += each * entropy[h][r];
            logprob[r] += logit[at + from->action[row[r] * net->heads + h]][r];
        }
    }
    for (int r = 0; r < n; r++)
        mf_row_loss(&from->rows, s, u->scale, each, row[r], logprob[r], logit[net->outputs - 1][r], slot->stats,
                    &by_logprob[r], &by_value[r]);
    for (int h = 0, at = 0; h < net->heads; at += net->nvec[h++]) {
        for (int j = at; j < at + net->nvec[h]; j++)
            for (int r = 0; r < MF_TILE; r++)
                e[j][r] *= bonus * (logit[j][r] + entropy[h][r]) - by_logprob[r];
        for (int r = 0; r < n; r++)
            e[at + from->action[row[r] * net->heads + h]][r] += by_logprob[r];
    }
    for (int r = 0; r < n; r++) {
        float *out = slot->tile.out + (long)r * net->padded;
        for (int j = 0; j < net->outputs - 1; j++)
            out[j] = e[j][r];
        out[net->outputs - 1] = by_value[r];
    }
}

/* Add the gradients of n rows from those of their outputs, tile.out. */
static void mf_grid_backward(const mf_grid_update *u, mf_slot *slot, int n)
{
    const mf_grid_net *net = &u->net;
    const int hidden = net->hidden, out = net->padded;
    mf_grid_tile *t = &slot->tile;
    float *grad[MF_TENSORS], *d1 = t->h2;
    for (int i = 0; i < MF_TENSORS; i++)
        grad[i] = slot->grad + u->tensor[i].at;
    mf_product_add(net->outputs, hidden, n, t->out, 1, out, t->h2, hidden, grad[MF_W3], hidden);
    mf_add_columns(t->out, n, net->outputs, out, grad[MF_B3]);
    mf_product(n, hidden, net->outputs, t->out, out, 1, net->w3, hidden, 0, t->d, hidden);
    mf_activate_gradient(MF_RELU, t->h2, t->d, (long)n * hidden);
    mf_product_add(hidden, hidden, n, t->d, 1, hidden, t->h1, hidden, grad[MF_W2], hidden);
    mf_add_columns(t->d, n, hidden, hidden, grad[MF_B2]);
    mf_product(n, hidden, hidden, t->d, hidden, 1, net->s2, net->ldw, 0, d1, hidden);
    mf_activate_gradient(MF_RELU, t->h1, d1, (long)n * hidden);
    mf_add_columns(d1, n, hidden, hidden, grad[MF_B1]);
    for (int r = 0; r < n; r++) {
        const int32_t at = slot->start[r];
        mf_scatter(slot->start[r + 1] - at, slot->column + at, slot->value + at, grad[MF_W1], d1 + (long)r * hidden,
                   hidden, 0, hidden);
    }
}

/* Each slot's share of the minibatch: its gradients and statistics. */
static int32_t mf_grid_rows(void *update, int32_t lo, int32_t hi)
{
    mf_grid_update *u = update;
    for (int i = lo; i < hi; i++) {
        mf_slot *slot = &u->slot[i];
        const int end = (int)((long)u->n * (i + 1) / u->slots);
        memset(slot->stats, 0, sizeof slot->stats);
        for (int at = (int)((long)u->n * i / u->slots); at < end; at += MF_TILE) {
            const int n = end - at < MF_TILE ? end - at : MF_TILE;
            mf_grid_first(&u->net, slot, u->from->obs, u->kept + at, n, end - at);
            mf_grid_forward(&u->net, &slot->tile, n);
            mf_grid_loss(u, slot, u->kept + at, n);
            mf_grid_backward(u, slot, n);
        }
    }
    return 0;
}

/* ---- the weights ---- */

/* Where slot i's share of the weights begins, a whole number of vectors on. */
static long mf_grid_share(const mf_grid_update *u, int i) { return u->floats / 16 * i / u->slots * 16; }

/* Each slot's share of the gradients: summed into slot 0's, and their squares; the others' are 0 again. */
static int32_t mf_grid_sum(void *update, int32_t lo, int32_t hi)
{
    mf_grid_update *u = update;
    float *total = u->slot[0].grad;
    for (int i = lo; i < hi; i++) {
        const long from = mf_grid_share(u, i), to = mf_grid_share(u, i + 1);
        for (int k = 1; k < u->slots; k++) {
            float *restrict part = u->slot[k].grad;
            for (long j = from; j < to; j++)
                total[j] += part[j], part[j] = 0;
        }
        double squares = 0;
        for (long j = from; j < to; j += 16) {
            float sum = 0;
            for (int v = 0; v < 16; v++)
                sum += total[j + v] * total[j + v];
            squares += sum;
        }
        u->slot[i].squares = squares;
    }
    return 0;
}

/* Each slot's share of the weights takes the step; the gradients are 0 again. */
static int32_t mf_grid_step(void *update, int32_t lo, int32_t hi)
{
    mf_grid_update *u = update;
    const long begin = mf_grid_share(u, lo), end = mf_grid_share(u, hi);
    for (int k = 0; k < MF_TENSORS; k++) {
        const mf_tensor *t = &u->tensor[k];
        const long from = begin > t->at ? begin - t->at : 0, to = end - t->at < t->size ? end - t->at : t->size;
        if (from < to)
            mf_adam_step(&u->adam, to - from, u->slot[0].grad + t->at + from, t->weight + from, t->first + from,
                         t->second + from);
    }
    memset(u->slot[0].grad + begin, 0, sizeof(float) * (end - begin));
    return 0;
}

/* The gradients are dropped: no step is taken. */
static void mf_grid_drop(mf_grid_update *u)
{
    for (int i = 0; i < u->slots; i++)
        memset(u->slot[i].grad, 0, sizeof(float) * u->floats);
}

/* A pass: `total` rows in minibatches of `each`; `step` steps were taken before. Sums are added to sums [MF_SUMS].
 * Returns 1, or 0 once target_kl is passed: that minibatch is counted, but takes no step. */
static int mf_grid_pass(mf_grid_update *u, const mf_grid_rollout *from, const mf_settings *s, const int64_t *rows,
                        long total, int each, double step, double *sums)
{
    u->from = from, u->settings = s;
    for (long at = 0; at + each <= total; at += each) {
        double kl = 0, squares = 0;
        mf_grid_begin(u, rows + at, each);
        mf_team_do(&u->team, MF_JOB_ROWS);
        for (int i = 0; i < u->slots; i++) {
            for (int k = 0; k <= MF_CLIPPED; k++)
                sums[k] += u->slot[i].stats[k];
            kl += u->slot[i].stats[MF_KL];
        }
        sums[MF_MINIBATCHES] += 1;
        if (s->target_kl >= 0 && kl > s->target_kl) {
            mf_grid_drop(u);
            return 0;
        }
        mf_team_do(&u->team, MF_JOB_SUM);
        for (int i = 0; i < u->slots; i++)
            squares += u->slot[i].squares;
        const float norm = (float)sqrt(squares);
        u->adam = mf_adam_at(s, ++step, mf_shrink(s, norm));
        mf_team_do(&u->team, MF_JOB_STEP);
        sums[MF_NORM] += norm;
        sums[MF_STEPS] += 1;
    }
    return 1;
}

#endif
