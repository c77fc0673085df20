/* A pass of PPO's update over the rows of a rollout, for one network (actions and value) or two (actions, value), on one
 * or several threads. Of each minibatch
 *
 *   each slot, its share of the rows:    tiles of  observation ─► networks ─► loss and its gradient ─► backward
 *   each slot, its share of the weights: gradients of all slots added up;  then, once their norm is known, Adam
 *
 * A slot has gradients of its own, so results depend on the number of slots, not on the order of the threads.
 * mlp_update.py is the caller; learner.py and loss.py are the reference in torch.
 */
#ifndef MF_MLP_UPDATE_H
#define MF_MLP_UPDATE_H

#include "../../../policy/fused_act/mlp_network.h"
#include "../../../runtime/c/thread_team.h"
#include "ppo_loss.h"

enum { MF_MOST_LEAVES = 16, MF_NETS = 2, MF_ALL_TENSORS = MF_NETS * MF_TENSORS + 1 };

#define MF_LEAST_LOG_STD -10.0f
#define MF_MOST_LOG_STD 2.0f
#define MF_HALF_LOG_2PI 0.918938533f

/* A tensor [rows, columns] with Adam's moments. Its gradient begins `at` floats into each slot's, with rows ld apart. */
typedef struct {
    float *weight, *first, *second;
    int rows, columns, ld;
    long at;
} mf_tensor;

/* A leaf of the observation, `size` floats a row; shift NULL: it is not normalised. */
typedef struct {
    const float *rows, *shift, *scale;
    int size;
} mf_leaf;

/* What a network reads: bytes (a sparse first layer), or leaves side by side. */
typedef struct {
    mf_leaf leaf[MF_MOST_LEAVES];
    int leaves;
    const uint8_t *bytes;
} mf_view;

/* choice [rows, heads] of discrete actions, action [rows, width] of continuous ones. */
typedef struct {
    mf_view view[MF_NETS];
    mf_rows rows;
    const int32_t *choice;
    const float *action;
} mf_rollout;

/* A tile's inputs that are not zero, of a sparse first layer: row r's are [start[r], start[r + 1]). */
typedef struct {
    int32_t *column, start[MF_TILE + 1];
    float *value;
} mf_lists;

/* The memory of one thread. */
typedef struct {
    mf_tile tile[MF_NETS];
    mf_lists lists[MF_NETS];
    mf_pairs pairs;
    float *grad;
    double stats[MF_CLIPPED + 1], squares;
} mf_slot;

typedef struct {
    mf_net net[MF_NETS];
    int nets;  /* 1: the network's last output is the value; 2: the second network's only output is */
    int alike; /* both networks read the same */
    int heads, nvec[MF_MOST_HEADS];
    int width; /* of a continuous action, with log_std as the first tensor; 0: actions are discrete */
    mf_tensor tensor[MF_ALL_TENSORS];
    int tensors, slots;
    long floats; /* of a slot's gradients */
    mf_slot *slot;
    mf_team team;
    /* of the pass */
    const mf_rollout *from;
    const mf_settings *settings;
    /* of the minibatch: its unmasked rows and their number, the scale of advantages, Adam's factors */
    int64_t *kept;
    int n;
    mf_scale scale;
    mf_adam adam;
} mf_update;

enum { MF_JOB_ROWS, MF_JOB_SUM, MF_JOB_STEP, MF_JOBS };

static void mf_update_free(mf_update *u)
{
    mf_team_free(&u->team);
    for (int i = 0; u->slot && i < u->slots; i++) {
        for (int k = 0; k < MF_NETS; k++) {
            mf_tile_free(&u->slot[i].tile[k]);
            free(u->slot[i].lists[k].column);
            free(u->slot[i].lists[k].value);
        }
        free(u->slot[i].grad);
    }
    for (int k = 0; k < MF_NETS; k++)
        mf_net_free(&u->net[k]);
    free(u->slot);
    free(u->kept);
    free(u);
}

/* The tensors in their order: log_std of continuous actions, then weight and bias of each network's layers. */
static void mf_list_tensors(mf_update *u, const int *columns)
{
    if (u->width)
        u->tensor[u->tensors++] = (mf_tensor){.rows = 1, .columns = u->width, .ld = mf_pad(u->width)};
    for (int k = 0; k < u->nets; k++) {
        const mf_net *net = &u->net[k];
        const int hidden = net->hidden, out = net->outputs, sparse = net->layout >= 0;
        const int shape[MF_TENSORS][3] = {
            {sparse ? columns[k] : hidden, sparse ? hidden : net->inputs, sparse ? hidden : net->padded_in},
            {1, hidden, hidden}, {hidden, hidden, hidden}, {1, hidden, hidden},
            {out, hidden, hidden}, {1, out, net->padded_out}};
        for (int i = 0; i < MF_TENSORS; i++)
            u->tensor[u->tensors++] = (mf_tensor){.rows = shape[i][0], .columns = shape[i][1], .ld = shape[i][2]};
    }
    for (int i = 0; i < u->tensors; i++) {
        u->tensor[i].at = u->floats;
        u->floats += ((long)u->tensor[i].rows * u->tensor[i].ld + 15) / 16 * 16;
    }
}

static int mf_slot_make(mf_slot *slot, const mf_update *u)
{
    slot->grad = mf_floats(u->floats);
    int whole = slot->grad != 0;
    for (int k = 0; whole && k < u->nets; k++) {
        whole = mf_tile_make(&slot->tile[k], &u->net[k]);
        if (whole && u->net[k].layout >= 0 && !(k && u->alike)) {
            slot->lists[k].column = malloc(sizeof(int32_t) * MF_TILE * MF_MAX_PAIRS);
            slot->lists[k].value = malloc(sizeof(float) * MF_TILE * MF_MAX_PAIRS);
            whole = slot->lists[k].column && slot->lists[k].value;
        }
    }
    return whole;
}

static int32_t mf_update_rows(void *update, int32_t lo, int32_t hi);
static int32_t mf_update_sum(void *update, int32_t lo, int32_t hi);
static int32_t mf_update_step(void *update, int32_t lo, int32_t hi);

/* Of `given` the networks' sizes, nets, alike, heads, width and slots are read; slots: threads, the caller one of them.
 * columns: inputs of each sparse first layer; most: rows of a minibatch. NULL: no memory. Start its team before use. */
static mf_update *mf_update_new(const mf_update *given, const int *columns, int64_t spin_ns, int most)
{
    mf_update *u = calloc(1, sizeof *u);
    if (!u)
        return 0;
    u->nets = given->nets, u->alike = given->alike, u->width = given->width, u->slots = given->slots;
    u->heads = given->heads;
    memcpy(u->nvec, given->nvec, sizeof u->nvec);
    u->kept = malloc(sizeof(int64_t) * most);
    u->slot = calloc(u->slots, sizeof *u->slot);
    int whole = u->kept && u->slot;
    for (int k = 0; whole && k < u->nets; k++) {
        u->net[k] = given->net[k];
        u->net[k].t2 = 0;
        whole = mf_net_make(&u->net[k]);
    }
    if (whole)
        mf_list_tensors(u, columns);
    for (int i = 0; whole && i < u->slots; i++)
        whole = mf_slot_make(&u->slot[i], u);
    if (!whole || !mf_team_make(&u->team, MF_JOBS, u->slots - 1, spin_ns)) {
        mf_update_free(u);
        return 0;
    }
    const mf_job_fn work[MF_JOBS] = {mf_update_rows, mf_update_sum, mf_update_step};
    for (int j = 0; j < MF_JOBS; j++)
        mf_team_job(&u->team, j, work[j], u, u->slots);
    return u;
}

/* ---- the rows ---- */

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
MF_INLINE float mf_log_std(const mf_update *u, int j, int *inside)
{
    const float raw = u->tensor[0].weight[j];
    *inside = raw >= MF_LEAST_LOG_STD && raw <= MF_MOST_LOG_STD;
    return raw < MF_LEAST_LOG_STD ? MF_LEAST_LOG_STD : raw > MF_MOST_LOG_STD ? MF_MOST_LOG_STD : raw;
}

/* The same with continuous actions; the gradient of log_std, but for the entropy's, is added to the slot's. */
static void mf_loss_normal(const mf_update *u, mf_slot *slot, const int64_t *row, int n)
{
    const int width = u->width, ldo = u->net[0].padded_out;
    const double each = 1.0 / u->n;
    float spread[width], inverse[width], *grad_std = slot->grad + u->tensor[0].at;
    for (int j = 0, inside; j < width; j++) {
        const float log_std = mf_log_std(u, j, &inside);
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
    for (int j = 0, inside; j < u->width; j++) {
        entropy += mf_log_std(u, j, &inside) + 0.5f + MF_HALF_LOG_2PI;
        grad_std[j] = inside ? grad_std[j] - (counts ? u->settings->entropy_coef : 0) : 0.0f;
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

/* ---- the weights ---- */

/* Where slot i's share of the weights begins: whole vectors. */
static long mf_share(const mf_update *u, int i) { return u->floats / 16 * i / u->slots * 16; }

/* The sum of squares of one slot's gradients, row by row of each tensor. */
static double mf_squares_by_row(const mf_update *u, const float *grad)
{
    double squares = 0;
    for (int k = 0; k < u->tensors; k++) {
        const mf_tensor *t = &u->tensor[k];
        double total = 0;
        for (int i = 0; i < t->rows; i++) {
            mf_v8 sum = {0};
            for (int j = 0; j < t->ld; j += 8) {
                const mf_v8 g = *(const mf_u8 *)(grad + t->at + (long)i * t->ld + j);
                sum += g * g;
            }
            for (int j = 0; j < 8; j++)
                total += sum[j];
        }
        squares += total;
    }
    return squares;
}

/* The sum of squares of a share of the gradients. */
static double mf_squares(const float *grad, long from, long to)
{
    double squares = 0;
    for (long j = from; j < to; j += 16) {
        float sum = 0;
        for (int v = 0; v < 16; v++)
            sum += grad[j + v] * grad[j + v];
        squares += sum;
    }
    return squares;
}

/* Each slot's share of the gradients: summed into slot 0's, and their squares; the others' are 0 again.
 * The two orders of summation keep a dense and a sparse network's results what they always were, to the bit. */
static int32_t mf_update_sum(void *update, int32_t lo, int32_t hi)
{
    mf_update *u = update;
    float *total = u->slot[0].grad;
    for (int i = lo; i < hi; i++) {
        const long from = mf_share(u, i), to = mf_share(u, i + 1);
        for (int k = 1; k < u->slots; k++) {
            float *restrict part = u->slot[k].grad;
            for (long j = from; j < to; j++)
                total[j] += part[j], part[j] = 0;
        }
        const int by_row = u->slots == 1 && u->net[0].layout < 0;
        u->slot[i].squares = by_row ? mf_squares_by_row(u, total) : mf_squares(total, from, to);
    }
    return 0;
}

/* Each slot's share of the weights takes the step; the gradients are 0 again. */
static int32_t mf_update_step(void *update, int32_t lo, int32_t hi)
{
    mf_update *u = update;
    const long begin = mf_share(u, lo), end = mf_share(u, hi);
    for (int k = 0; k < u->tensors; k++) {
        const mf_tensor *t = &u->tensor[k];
        const int whole = t->ld == t->columns; /* no gap between rows: one long row */
        const long columns = whole ? (long)t->rows * t->columns : t->columns;
        for (int row = 0; row < (whole ? 1 : t->rows); row++) {
            const long at = t->at + (long)row * t->ld, to_weight = row * columns;
            const long from = begin > at ? begin - at : 0, to = end - at < columns ? end - at : columns;
            if (from < to)
                mf_adam_step(&u->adam, to - from, u->slot[0].grad + at + from, t->weight + to_weight + from,
                             t->first + to_weight + from, t->second + to_weight + from);
        }
    }
    memset(u->slot[0].grad + begin, 0, sizeof(float) * (end - begin));
    return 0;
}

/* ---- the pass ---- */

/* Every slot's part of a job. */
static void mf_do(mf_update *u, int job)
{
    const mf_job_fn work[MF_JOBS] = {mf_update_rows, mf_update_sum, mf_update_step};
    if (u->slots == 1)
        work[job](u, 0, 1);
    else
        mf_team_do(&u->team, job);
}

/* A pass: `total` rows in minibatches of `each`; `step` steps were taken before. Sums are added to sums [MF_SUMS].
 * Returns 1, or 0 once target_kl is passed: that minibatch is counted, but takes no step. */
static int mf_pass(mf_update *u, const mf_rollout *from, const mf_settings *s, const int64_t *rows, long total,
                   int each, double step, double *sums)
{
    u->from = from, u->settings = s;
    for (long at = 0; at + each <= total; at += each) {
        double kl = 0, squares = 0;
        mf_update_begin(u, rows + at, each);
        mf_do(u, MF_JOB_ROWS);
        for (int i = 0; i < u->slots; i++) {
            for (int k = 0; k <= MF_CLIPPED; k++)
                sums[k] += u->slot[i].stats[k];
            kl += u->slot[i].stats[MF_KL];
        }
        sums[MF_MINIBATCHES] += 1;
        if (s->target_kl >= 0 && kl > s->target_kl) {
            for (int i = 0; i < u->slots; i++)
                memset(u->slot[i].grad, 0, sizeof(float) * u->floats);
            return 0;
        }
        mf_do(u, MF_JOB_SUM);
        for (int i = 0; i < u->slots; i++)
            squares += u->slot[i].squares;
        const float norm = (float)sqrt(squares);
        u->adam = mf_adam_at(s, ++step, mf_shrink(s, norm));
        mf_do(u, MF_JOB_STEP);
        sums[MF_NORM] += norm;
        sums[MF_STEPS] += 1;
    }
    return 1;
}

#endif
