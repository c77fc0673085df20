/* The gradients of a minibatch's rows (mlp_update.h): tiles of 64 rows go forward and backward in a slot's memory. */
#ifndef MF_MLP_UPDATE_ROWS_H
#define MF_MLP_UPDATE_ROWS_H

#include "mlp_update_state.h"

/* Begins a minibatch of `count` rows: its unmasked ones, the scale of their advantages, the present weights. */
static void mf_update_begin(mf_update *u, const int64_t *rows, int count)
{
    u->n = 0;
    for (int b = 0; b < count; b++)
        if (u->from->rows.mask[rows[b]])
            u->kept[u->n++] = rows[b];
    u->scale = mf_advantage_scale(&u->from->rows, u->settings, u->kept, u->n);
    for (int k = 0; k < u->nets; k++)
        mf_net_pack(&u->net[k]);
}

enum { MF_AHEAD = 2 }; /* rows that are prefetched: they lie anywhere in the rollout */

/* A sparse first layer's inputs of n rows into lists; `more` of the rows may be prefetched. */
static void mf_list_inputs(const mf_net *net, const uint8_t *bytes, const int64_t *row, int n, int more, mf_pairs *p,
                           mf_lists *to)
{
    ptrdiff_t size;
    const mf_decoder decode = mf_layout(net->layout, &size);
    to->start[0] = 0;
    for (int r = 0; r < n; r++) {
        const int32_t at = to->start[r];
        if (r + MF_AHEAD < more)
            for (long line = 0; line < size; line += 64)
                __builtin_prefetch(bytes + row[r + MF_AHEAD] * size + line);
        decode(p, bytes + row[r] * size, net->scale);
        memcpy(to->column + at, p->column, sizeof(int32_t) * p->count);
        memcpy(to->value + at, p->value, sizeof(float) * p->count);
        to->start[r + 1] = at + p->count;
    }
}

/* A row of the rollout as a dense first layer reads it, into x. */
static void mf_read(const mf_view *view, int64_t row, float *x)
{
    for (int i = 0; i < view->leaves; i++) {
        const mf_leaf *leaf = &view->leaf[i];
        const float *obs = leaf->rows + row * leaf->size;
        for (int j = 0; j < leaf->size; j++) {
            float value = obs[j];
            if (leaf->shift) {
                value = (value - leaf->shift[j]) * leaf->scale[j];
                value = value < -10.0f ? -10.0f : value > 10.0f ? 10.0f : value;
            }
            *x++ = value;
        }
    }
}

/* Network k's first layer of n rows: sums into h1. `more` of the list can be read. */
static void mf_first(const mf_update *u, mf_slot *slot, int k, const int64_t *row, int n, int more)
{
    const mf_net *net = &u->net[k];
    const mf_view *view = &u->from->view[k];
    const int source = u->alike ? 0 : k, hidden = net->hidden;
    float *x = slot->tile[source].x, *h1 = slot->tile[k].h1;
    if (net->layout < 0) {
        for (int r = 0; source == k && r < n; r++)
            mf_read(view, row[r], x + (long)r * net->padded_in);
        mf_product(n, hidden, net->inputs, x, net->padded_in, 1, net->t1, net->ldw, net->weight[MF_B1], h1, hidden);
        return;
    }
    mf_lists *lists = &slot->lists[source];
    if (source == k)
        mf_list_inputs(net, view->bytes, row, n, more, &slot->pairs, lists);
    for (int r = 0; r < n; r++) {
        const int32_t at = lists->start[r];
        mf_gather(lists->start[r + 1] - at, lists->column + at, lists->value + at, net->weight[MF_W1],
                  net->weight[MF_B1], h1 + (long)r * hidden, hidden);
    }
}

/* Where row r's value is among the outputs. */
MF_INLINE float *mf_value(const mf_update *u, mf_slot *slot, int r)
{
    const mf_net *net = &u->net[u->nets - 1];
    return slot->tile[u->nets - 1].out + (long)r * net->padded_out + net->outputs - 1;
}

/* The loss of a tile with discrete actions: statistics, and the gradients of the outputs into the tiles' out. */
static void mf_loss_discrete(const mf_update *u, mf_slot *slot, const int64_t *row, int n)
{
    const mf_net *net = &u->net[0];
    const mf_rollout *from = u->from;
    const mf_settings *s = u->settings;
    const double each = 1.0 / u->n;
    const float bonus = (float)(s->entropy_coef * each);
    mf_row *logit = slot->tile[0].logit, *e = slot->tile[0].exp, top, log_sum[MF_MOST_HEADS], sum, entropy[MF_MOST_HEADS];
    float logprob[MF_TILE] = {0}, by_logprob[MF_TILE] = {0}, by_value[MF_TILE];
    const int choices = net->outputs - (u->nets == 1);
    mf_logits(net, &slot->tile[0], n);
    for (int h = 0, at = 0; h < u->heads; at += u->nvec[h++]) {
        mf_softmax(logit + at, u->nvec[h], e + at, top, sum);
        for (int r = 0; r < MF_TILE; r++)
            log_sum[h][r] = top[r] + logf(sum[r]), sum[r] = 1.0f / sum[r], entropy[h][r] = 0;
        for (int j = at; j < at + u->nvec[h]; j++)
            for (int r = 0; r < MF_TILE; r++) {
                e[j][r] *= sum[r];              /* the probability */
                logit[j][r] -= log_sum[h][r];   /* and its logarithm */
                entropy[h][r] -= e[j][r] * logit[j][r];
            }
        for (int r = 0; r < n; r++) {
            slot->stats[MF_ENTROPY] += each * entropy[h][r];
            logprob[r] += logit[at + from->choice[row[r] * u->heads + h]][r];
        }
    }
    for (int r = 0; r < n; r++)
        mf_row_loss(&from->rows, s, u->scale, each, row[r], logprob[r], *mf_value(u, slot, r), slot->stats,
                    &by_logprob[r], &by_value[r]);
    for (int h = 0, at = 0; h < u->heads; at += u->nvec[h++]) {
        for (int j = at; j < at + u->nvec[h]; j++)
            for (int r = 0; r < MF_TILE; r++)
                e[j][r] *= bonus * (logit[j][r] + entropy[h][r]) - by_logprob[r];
        for (int r = 0; r < n; r++)
            e[at + from->choice[row[r] * u->heads + h]][r] += by_logprob[r];
    }
    for (int r = 0; r < n; r++) {
        float *out = slot->tile[0].out + (long)r * net->padded_out;
        for (int j = 0; j < choices; j++)
            out[j] = e[j][r];
        *mf_value(u, slot, r) = by_value[r];
    }
}

/* log_std [width], the first tensor, held between its bounds. */
MF_INLINE float mf_log_std(const mf_update *u, int j)
{
    const float raw = u->tensor[0].weight[j];
    return raw < MF_LEAST_LOG_STD ? MF_LEAST_LOG_STD : raw > MF_MOST_LOG_STD ? MF_MOST_LOG_STD : raw;
}

/* The same with continuous actions; the gradient of log_std, but for the entropy's, is added to the slot's. */
static void mf_loss_normal(const mf_update *u, mf_slot *slot, const int64_t *row, int n)
{
    const int width = u->width, ldo = u->net[0].padded_out;
    const double each = 1.0 / u->n;
    float spread[width], inverse[width], *grad_std = slot->grad + u->tensor[0].at;
    for (int j = 0; j < width; j++) {
        const float log_std = mf_log_std(u, j);
        spread[j] = log_std + MF_HALF_LOG_2PI, inverse[j] = expf(-log_std);
    }
    for (int r = 0; r < n; r++) {
        const float *action = u->from->action + row[r] * width;
        float *out = slot->tile[0].out + (long)r * ldo, distance[width], logprob = 0, grad, by_value;
        for (int j = 0; j < width; j++) {
            distance[j] = (action[j] - out[j]) * inverse[j];
            logprob += -0.5f * distance[j] * distance[j] - spread[j];
        }
        mf_row_loss(&u->from->rows, u->settings, u->scale, each, row[r], logprob, *mf_value(u, slot, r), slot->stats,
                    &grad, &by_value);
        for (int j = 0; j < width; j++) {
            out[j] = grad * distance[j] * inverse[j];
            grad_std[j] += grad * (distance[j] * distance[j] - 1);
        }
        *mf_value(u, slot, r) = by_value;
    }
}

/* What the rows do not change: the entropy of a normal distribution, and its gradient. Slot i's, after its rows. */
static void mf_normal_entropy(const mf_update *u, mf_slot *slot, int i)
{
    double entropy = 0;
    float *grad_std = slot->grad + u->tensor[0].at;
    const int counts = i == 0 && u->n;
    for (int j = 0; j < u->width; j++) {
        entropy += mf_log_std(u, j) + 0.5f + MF_HALF_LOG_2PI;
        grad_std[j] -= counts ? u->settings->entropy_coef : 0;
    }
    slot->stats[MF_ENTROPY] = counts ? entropy : 0;
}

/* Adds network k's gradients of n rows, from those of its outputs in the tile's out. */
static void mf_backward(const mf_update *u, mf_slot *slot, int k, int n)
{
    const mf_net *net = &u->net[k];
    const int hidden = net->hidden, out = net->padded_out, source = u->alike ? 0 : k;
    mf_tile *t = &slot->tile[k];
    float *grad[MF_TENSORS], *d1 = t->h2;
    for (int i = 0; i < MF_TENSORS; i++)
        grad[i] = slot->grad + u->tensor[(u->width > 0) + k * MF_TENSORS + i].at;
    mf_product_add(net->outputs, hidden, n, t->out, 1, out, t->h2, hidden, grad[MF_W3], hidden);
    mf_add_columns(t->out, n, net->outputs, out, grad[MF_B3]);
    mf_product(n, hidden, net->outputs, t->out, out, 1, net->weight[MF_W3], hidden, 0, t->d, hidden);
    mf_activate_gradient(net->activation, t->h2, t->d, (long)n * hidden);
    mf_product_add(hidden, hidden, n, t->d, 1, hidden, t->h1, hidden, grad[MF_W2], hidden);
    mf_add_columns(t->d, n, hidden, hidden, grad[MF_B2]);
    mf_product(n, hidden, hidden, t->d, hidden, 1, net->s2, net->ldw, 0, d1, hidden);
    mf_activate_gradient(net->activation, t->h1, d1, (long)n * hidden);
    mf_add_columns(d1, n, hidden, hidden, grad[MF_B1]);
    if (net->layout < 0) {
        const int in = net->padded_in;
        mf_product_add(hidden, in, n, d1, 1, hidden, slot->tile[source].x, in, grad[MF_W1], in);
        return;
    }
    const mf_lists *lists = &slot->lists[source];
    for (int r = 0; r < n; r++) {
        const int32_t at = lists->start[r];
        mf_scatter(lists->start[r + 1] - at, lists->column + at, lists->value + at, grad[MF_W1], d1 + (long)r * hidden,
                   hidden, 0, hidden);
    }
}

/* Each slot's share of the minibatch: its gradients and statistics. */
static int32_t mf_update_rows(void *update, int32_t lo, int32_t hi)
{
    mf_update *u = update;
    for (int i = lo; i < hi; i++) {
        mf_slot *slot = &u->slot[i];
        const int end = (int)((long)u->n * (i + 1) / u->slots);
        memset(slot->stats, 0, sizeof slot->stats);
        for (int at = (int)((long)u->n * i / u->slots); at < end; at += MF_TILE) {
            const int n = end - at < MF_TILE ? end - at : MF_TILE;
            for (int k = 0; k < u->nets; k++) {
                mf_first(u, slot, k, u->kept + at, n, end - at);
                mf_net_forward(&u->net[k], &slot->tile[k], n);
            }
            (u->width ? mf_loss_normal : mf_loss_discrete)(u, slot, u->kept + at, n);
            for (int k = 0; k < u->nets; k++)
                mf_backward(u, slot, k, n);
        }
        if (u->width)
            mf_normal_entropy(u, slot, i);
    }
    return 0;
}

#endif
