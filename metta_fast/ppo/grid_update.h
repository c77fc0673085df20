/* A minibatch of PPO's update for a grid policy (cpu_grid.h) on several threads.
 *
 *   each slot, its share of the rows:    tiles of  bytes ─► network ─► loss and its gradient ─► backward
 *   each slot, its share of the weights: gradients of all slots added up;  then, once their norm is known, Adam
 *
 * A slot has gradients of its own, so that what comes out depends on their number alone, not on the threads' order.
 * grid_update.py is the door; learner.py and loss.py are the same in torch, and what is right.
 */
#ifndef MF_GRID_UPDATE_H
#define MF_GRID_UPDATE_H

#include "../policy/cpu_grid.h"
#include "cpu_ppo.h"

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
    int slots, most;
    mf_slot *slot;
    int64_t *kept;      /* the minibatch's unmasked rows */
    int n;              /* their number */
    mf_scale scale;
} mf_grid_update;

static void mf_grid_update_free(mf_grid_update *u)
{
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

/* sizes: of the six tensors; net: its sizes; most: rows of a minibatch. NULL: no memory. */
static mf_grid_update *mf_grid_update_new(const mf_grid_net *net, const long *sizes, int slots, int most)
{
    mf_grid_update *u = calloc(1, sizeof *u);
    if (!u)
        return 0;
    u->net = *net, u->slots = slots, u->most = most;
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
    if (whole)
        return u;
    mf_grid_update_free(u);
    return 0;
}

/* ---- the rows ---- */

/* Begin a minibatch of `count` rows: its unmasked ones, their advantages' scale, the weights as they are now. */
static void mf_grid_begin(mf_grid_update *u, const mf_grid_rollout *from, const mf_settings *s, const int64_t *rows,
                          int count)
{
    u->n = 0;
    for (int b = 0; b < count; b++)
        if (from->rows.mask[rows[b]])
            u->kept[u->n++] = rows[b];
    u->scale = mf_advantage_scale(&from->rows, s, u->kept, u->n);
    mf_grid_net_pack(&u->net);
}

static void mf_grid_first(const mf_grid_net *net, mf_slot *slot, const uint8_t *obs, const int64_t *row, int n)
{
    ptrdiff_t bytes;
    const mf_decoder decode = mf_layout(net->layout, &bytes);
    mf_pairs *p = &slot->pairs;
    slot->start[0] = 0;
    for (int r = 0; r < n; r++) {
        const int32_t at = slot->start[r];
        decode(p, obs + row[r] * bytes, net->scale);
        memcpy(slot->column + at, p->column, sizeof(int32_t) * p->count);
        memcpy(slot->value + at, p->value, sizeof(float) * p->count);
        slot->start[r + 1] = at + p->count;
        mf_gather(p->count, p->column, p->value, net->w1, net->b1, slot->tile.h1 + (long)r * net->hidden, net->hidden);
    }
}

/* The tile's loss: statistics, and the gradients of its outputs into tile.out. */
static void mf_grid_loss(const mf_grid_update *u, mf_slot *slot, const mf_grid_rollout *from, const mf_settings *s,
                         const int64_t *row, int n)
{
    const mf_grid_net *net = &u->net;
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

/* Slot i's share of the minibatch: its gradients and statistics. */
static void mf_grid_rows(mf_grid_update *u, const mf_grid_rollout *from, const mf_settings *s, int i)
{
    mf_slot *slot = &u->slot[i];
    const int end = (int)((long)u->n * (i + 1) / u->slots);
    memset(slot->stats, 0, sizeof slot->stats);
    for (int at = (int)((long)u->n * i / u->slots); at < end; at += MF_TILE) {
        const int n = end - at < MF_TILE ? end - at : MF_TILE;
        mf_grid_first(&u->net, slot, from->obs, u->kept + at, n);
        mf_grid_forward(&u->net, &slot->tile, n);
        mf_grid_loss(u, slot, from, s, u->kept + at, n);
        mf_grid_backward(u, slot, n);
    }
}

/* ---- the weights ---- */

/* Where slot i's share of the weights begins, a whole number of vectors on. */
static long mf_grid_share(const mf_grid_update *u, int i) { return u->floats / 16 * i / u->slots * 16; }

/* Slot i's share of the gradients: summed into slot 0's, and their squares; the others' are 0 again. */
static void mf_grid_sum(mf_grid_update *u, int i)
{
    const long lo = mf_grid_share(u, i), hi = mf_grid_share(u, i + 1);
    float *total = u->slot[0].grad;
    for (int k = 1; k < u->slots; k++) {
        float *part = u->slot[k].grad;
        for (long j = lo; j < hi; j++)
            total[j] += part[j], part[j] = 0;
    }
    double squares = 0;
    for (long j = lo; j < hi; j += 16) {
        float sum = 0;
        for (int v = 0; v < 16; v++)
            sum += total[j + v] * total[j + v];
        squares += sum;
    }
    u->slot[i].squares = squares;
}

/* Slot i's share of the weights takes the step; the gradients are 0 again. */
static void mf_grid_step(mf_grid_update *u, const mf_adam *adam, int i)
{
    const long lo = mf_grid_share(u, i), hi = mf_grid_share(u, i + 1);
    for (int k = 0; k < MF_TENSORS; k++) {
        const mf_tensor *t = &u->tensor[k];
        const long from = lo > t->at ? lo - t->at : 0, to = hi - t->at < t->size ? hi - t->at : t->size;
        if (from < to)
            mf_adam_step(adam, to - from, u->slot[0].grad + t->at + from, t->weight + from, t->first + from,
                         t->second + from);
    }
    memset(u->slot[0].grad + lo, 0, sizeof(float) * (hi - lo));
}

/* The gradients are dropped: no step is taken. */
static void mf_grid_drop(mf_grid_update *u)
{
    for (int i = 0; i < u->slots; i++)
        memset(u->slot[i].grad, 0, sizeof(float) * u->floats);
}

/* The minibatch's statistics, added to sums [MF_SUMS]. Its KL. */
static double mf_grid_count(const mf_grid_update *u, double *sums)
{
    double kl = 0;
    for (int i = 0; i < u->slots; i++) {
        for (int k = 0; k <= MF_CLIPPED; k++)
            sums[k] += u->slot[i].stats[k];
        kl += u->slot[i].stats[MF_KL];
    }
    sums[MF_MINIBATCHES] += 1;
    return kl;
}

/* The norm of all gradients, after mf_grid_sum of every slot; counts the step. */
static float mf_grid_norm(const mf_grid_update *u, double *sums)
{
    double squares = 0;
    for (int i = 0; i < u->slots; i++)
        squares += u->slot[i].squares;
    sums[MF_NORM] += (float)sqrt(squares);
    sums[MF_STEPS] += 1;
    return (float)sqrt(squares);
}

#endif
