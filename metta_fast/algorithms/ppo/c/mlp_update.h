/* A pass of PPO's update over the rows of a rollout, for two small networks (actions, value) on one core.
 *
 *   each minibatch:  gather ─► forward ─► loss and its gradient ─► backward ─► clip ─► Adam
 *
 * cpu_update.py is the door; learner.py and loss.py are the same in torch, and what is right.
 */
#ifndef MF_CPU_UPDATE_H
#define MF_CPU_UPDATE_H

#include <stdlib.h>

#include "ppo_loss.h"

enum { MF_W1, MF_B1, MF_W2, MF_B2, MF_W3, MF_B3, MF_TENSORS };
enum { MF_MOST_LEAVES = 16 };

#define MF_LEAST_LOG_STD -10.0f
#define MF_MOST_LOG_STD 2.0f
#define MF_HALF_LOG_2PI 0.918938533f

/* A tensor [rows, columns] with Adam's moments; the gradient's rows are ld apart. */
typedef struct {
    float *weight, *first, *second, *grad;
    int rows, columns, ld;
} mf_tensor;

/* inputs ─► hidden ─► hidden ─► outputs, and what a minibatch leaves in it. */
typedef struct {
    int inputs, hidden, outputs, padded_in, padded_out, ldw;
    mf_tensor tensor[MF_TENSORS];
    float *t1, *t2, *t3, *bias3; /* weights transposed: [inputs, ldw], [hidden, ldw], [hidden, padded_out] */
    float *s2, *s3;              /* weights with rows ldw apart */
    float *h1, *h2, *out, *d1, *d2, *dout;
} mf_net;

typedef struct {
    int hidden, actions, activation, most;
    mf_net actor, critic;
    mf_tensor log_std;
    float *x, *y; /* what the actor and the critic read; the same memory where both read the same */
    float *ratio_grad, *memory;
    int64_t *kept;
} mf_update;

/* A leaf of the observation, size numbers a row; shift NULL: read as it is. */
typedef struct {
    const float *rows, *shift, *scale;
    int size;
} mf_leaf;

/* The leaves that a network reads, side by side. */
typedef struct {
    mf_leaf leaf[MF_MOST_LEAVES];
    int leaves;
} mf_view;

typedef struct {
    mf_view actor, critic;
    const float *action;
    mf_rows rows;
} mf_rollout;

MF_INLINE int mf_pad(int n) { return (n + 7) / 8 * 8; }

static float *mf_take(float **at, long n)
{
    float *here = *at;
    if (here)
        *at += (n + 15) / 16 * 16;
    return here;
}

/* Lay out a network's memory from *at on, or (at NULL) count the floats it needs. */
static long mf_net_layout(mf_net *net, int inputs, int hidden, int outputs, int most, float *memory)
{
    float *base = memory ? memory : (float *)64, *at = base;
    const int in = mf_pad(inputs), out = mf_pad(outputs), ldw = hidden + 8; /* off a power of two: sets of a cache */
    *net = (mf_net){.inputs = inputs, .hidden = hidden, .outputs = outputs, .padded_in = in, .padded_out = out,
                    .ldw = ldw};
    const int shape[MF_TENSORS][3] = {{hidden, inputs, in}, {1, hidden, hidden}, {hidden, hidden, hidden},
                                      {1, hidden, hidden},  {outputs, hidden, hidden}, {1, outputs, out}};
    for (int i = 0; i < MF_TENSORS; i++) {
        net->tensor[i] = (mf_tensor){.rows = shape[i][0], .columns = shape[i][1], .ld = shape[i][2]};
        net->tensor[i].grad = mf_take(&at, (long)shape[i][0] * shape[i][2]);
    }
    net->t1 = mf_take(&at, (long)inputs * ldw);
    net->t2 = mf_take(&at, (long)hidden * ldw);
    net->t3 = mf_take(&at, (long)hidden * out);
    net->bias3 = mf_take(&at, out);
    net->s2 = mf_take(&at, (long)hidden * ldw);
    net->s3 = mf_take(&at, (long)outputs * ldw);
    float **wide[] = {&net->h1, &net->h2, &net->d1, &net->d2};
    for (int i = 0; i < 4; i++)
        *wide[i] = mf_take(&at, (long)most * hidden);
    net->out = mf_take(&at, (long)most * out);
    net->dout = mf_take(&at, (long)most * out);
    return at - base;
}

static void mf_update_free(mf_update *u)
{
    free(u->memory);
    free(u->kept);
    free(u);
}

/* seen: numbers that the critic reads, 0 where it reads what the actor does (`inputs` numbers).
 * most: rows of a minibatch at most. NULL: no memory. */
static mf_update *mf_update_new(int inputs, int seen, int hidden, int actions, int activation, int most)
{
    mf_update *u = calloc(1, sizeof *u);
    if (!u)
        return 0;
    mf_net none;
    const int own = seen ? seen : inputs;
    const long actor = mf_net_layout(&none, inputs, hidden, actions, most, 0);
    const long critic = mf_net_layout(&none, own, hidden, 1, most, 0);
    const long x = ((long)most * mf_pad(inputs) + 15) / 16 * 16, y = ((long)most * mf_pad(seen) + 15) / 16 * 16;
    const long floats = actor + critic + x + y + mf_pad(actions) + most + 64;
    u->kept = malloc(sizeof(int64_t) * most);
    if (!u->kept || posix_memalign((void **)&u->memory, 64, sizeof(float) * floats)) {
        u->memory = 0;
        mf_update_free(u);
        return 0;
    }
    memset(u->memory, 0, sizeof(float) * floats);
    u->hidden = hidden, u->actions = actions, u->activation = activation, u->most = most;
    mf_net_layout(&u->actor, inputs, hidden, actions, most, u->memory);
    mf_net_layout(&u->critic, own, hidden, 1, most, u->memory + actor);
    u->x = u->memory + actor + critic;
    u->y = seen ? u->x + x : u->x;
    u->log_std = (mf_tensor){.rows = 1, .columns = actions, .ld = mf_pad(actions)};
    u->log_std.grad = u->x + x + y;
    u->ratio_grad = u->log_std.grad + mf_pad(actions);
    return u;
}

/* ---- the networks ---- */

/* weight [rows, columns] to its transpose [columns, ldt] and, if wanted, to rows lds apart. */
static void mf_spread(const mf_tensor *tensor, float *transposed, long ldt, float *straight, long lds)
{
    for (int i = 0; i < tensor->rows; i++) {
        const float *row = tensor->weight + (long)i * tensor->columns;
        for (int j = 0; j < tensor->columns; j++)
            transposed[j * ldt + i] = row[j];
        if (straight)
            memcpy(straight + i * lds, row, sizeof(float) * tensor->columns);
    }
}

static void mf_forward(mf_net *net, int activation, const float *x, int rows)
{
    const int hidden = net->hidden, ldw = net->ldw;
    mf_tensor *t = net->tensor;
    mf_spread(&t[MF_W1], net->t1, ldw, 0, 0);
    mf_spread(&t[MF_W2], net->t2, ldw, net->s2, ldw);
    mf_spread(&t[MF_W3], net->t3, net->padded_out, net->s3, ldw);
    memcpy(net->bias3, t[MF_B3].weight, sizeof(float) * net->outputs);
    mf_product(rows, hidden, net->inputs, x, net->padded_in, 1, net->t1, ldw, t[MF_B1].weight, net->h1, hidden);
    mf_activate(activation, net->h1, (long)rows * hidden);
    mf_product(rows, hidden, hidden, net->h1, hidden, 1, net->t2, ldw, t[MF_B2].weight, net->h2, hidden);
    mf_activate(activation, net->h2, (long)rows * hidden);
    mf_product(rows, net->padded_out, hidden, net->h2, hidden, 1, net->t3, net->padded_out, net->bias3, net->out,
               net->padded_out);
}

/* Gradients of all tensors from `dout` [rows, padded_out]. */
static void mf_backward(mf_net *net, int activation, const float *x, int rows)
{
    const int hidden = net->hidden, in = net->padded_in, out = net->padded_out, ldw = net->ldw;
    mf_tensor *t = net->tensor;
    mf_product(net->outputs, hidden, rows, net->dout, 1, out, net->h2, hidden, 0, t[MF_W3].grad, hidden);
    mf_column_sums(net->dout, rows, out, t[MF_B3].grad);
    mf_product(rows, hidden, net->outputs, net->dout, out, 1, net->s3, ldw, 0, net->d2, hidden);
    mf_activate_gradient(activation, net->h2, net->d2, (long)rows * hidden);
    mf_product(hidden, hidden, rows, net->d2, 1, hidden, net->h1, hidden, 0, t[MF_W2].grad, hidden);
    mf_column_sums(net->d2, rows, hidden, t[MF_B2].grad);
    mf_product(rows, hidden, hidden, net->d2, hidden, 1, net->s2, ldw, 0, net->d1, hidden);
    mf_activate_gradient(activation, net->h1, net->d1, (long)rows * hidden);
    mf_product(hidden, in, rows, net->d1, 1, hidden, x, in, 0, t[MF_W1].grad, in);
    mf_column_sums(net->d1, rows, hidden, t[MF_B1].grad);
}

/* ---- one minibatch ---- */

/* A row of the rollout as a network reads it, into x. */
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

/* The unmasked rows of the minibatch: their numbers into `kept`, their observations into `x` and `y`. */
static int mf_gather(mf_update *u, const mf_rollout *from, const int64_t *rows, int n)
{
    int count = 0;
    for (int b = 0; b < n; b++) {
        const int64_t row = rows[b];
        if (!from->rows.mask[row])
            continue;
        mf_read(&from->actor, row, u->x + (long)count * u->actor.padded_in);
        if (u->y != u->x)
            mf_read(&from->critic, row, u->y + (long)count * u->critic.padded_in);
        u->kept[count++] = row;
    }
    return count;
}

/* Gradients of the networks' outputs and of log_std; statistics into stats [MF_CLIPPED + 1]. */
static void mf_loss(mf_update *u, const mf_rollout *from, const mf_settings *s, int n, double *stats)
{
    const int width = u->actions, ldo = u->actor.padded_out, ldv = u->critic.padded_out;
    const double each = 1.0 / n;
    const mf_scale scale = mf_advantage_scale(&from->rows, s, u->kept, n);
    double entropy = 0;
    float spread[width], inverse[width], grad_std[width];
    for (int j = 0; j < width; j++) {
        const float raw = u->log_std.weight[j];
        const float log_std = raw < MF_LEAST_LOG_STD ? MF_LEAST_LOG_STD : raw > MF_MOST_LOG_STD ? MF_MOST_LOG_STD : raw;
        spread[j] = log_std + MF_HALF_LOG_2PI, inverse[j] = expf(-log_std), grad_std[j] = 0;
        entropy += log_std + 0.5f + MF_HALF_LOG_2PI;
    }
    for (int b = 0; b < n; b++) {
        const int64_t row = u->kept[b];
        const float *action = from->action + row * width, *out = u->actor.out + (long)b * ldo;
        float distance[width], logprob = 0;
        for (int j = 0; j < width; j++) {
            distance[j] = (action[j] - out[j]) * inverse[j];
            logprob += -0.5f * distance[j] * distance[j] - spread[j];
        }
        float grad;
        mf_row_loss(&from->rows, s, scale, each, row, logprob, u->critic.out[(long)b * ldv], stats, &grad,
                    &u->critic.dout[(long)b * ldv]);
        for (int j = 0; j < width; j++) {
            u->actor.dout[(long)b * ldo + j] = grad * distance[j] * inverse[j];
            grad_std[j] += grad * (distance[j] * distance[j] - 1);
        }
    }
    stats[MF_ENTROPY] = n ? entropy : 0;
    for (int j = 0; j < width; j++) {
        const float raw = u->log_std.weight[j];
        const int inside = raw >= MF_LEAST_LOG_STD && raw <= MF_MOST_LOG_STD;
        u->log_std.grad[j] = inside ? grad_std[j] - (n ? s->entropy_coef : 0) : 0.0f;
    }
}

/* ---- the step ---- */

static double mf_squares(const mf_tensor *t)
{
    double total = 0;
    for (int i = 0; i < t->rows; i++) {
        mf_v8 sum = {0};
        for (int j = 0; j < t->ld; j += 8) {
            const mf_v8 g = *(const mf_u8 *)(t->grad + (long)i * t->ld + j);
            sum += g * g;
        }
        for (int j = 0; j < 8; j++)
            total += sum[j];
    }
    return total;
}

static void mf_step(mf_update *u, const mf_settings *s, double step, double *sums)
{
    mf_tensor *tensor[2 * MF_TENSORS + 1] = {&u->log_std};
    for (int i = 0; i < MF_TENSORS; i++)
        tensor[1 + i] = &u->actor.tensor[i], tensor[1 + MF_TENSORS + i] = &u->critic.tensor[i];
    double squares = 0;
    for (int i = 0; i < 2 * MF_TENSORS + 1; i++)
        squares += mf_squares(tensor[i]);
    const float norm = (float)sqrt(squares);
    const mf_adam adam = mf_adam_at(s, step, mf_shrink(s, norm));
    for (int i = 0; i < 2 * MF_TENSORS + 1; i++) {
        const mf_tensor *t = tensor[i];
        for (int row = 0; row < t->rows; row++) {
            const long at = (long)row * t->columns;
            mf_adam_step(&adam, t->columns, t->grad + (long)row * t->ld, t->weight + at, t->first + at, t->second + at);
        }
    }
    sums[MF_NORM] += norm;
    sums[MF_STEPS] += 1;
}

/* A pass: `total` rows in minibatches of `each`; `step` steps were taken before. Sums are added to sums [MF_SUMS].
 * Returns 1, or 0 once target_kl is passed: that minibatch is counted, but takes no step. */
static int mf_pass(mf_update *u, const mf_rollout *from, const mf_settings *s, const int64_t *rows, long total,
                   int each, double step, double *sums)
{
    for (long at = 0; at + each <= total; at += each) {
        double stats[MF_CLIPPED + 1] = {0};
        const int n = mf_gather(u, from, rows + at, each);
        mf_forward(&u->actor, u->activation, u->x, n);
        mf_forward(&u->critic, u->activation, u->y, n);
        mf_loss(u, from, s, n, stats);
        for (int i = 0; i <= MF_CLIPPED; i++)
            sums[i] += stats[i];
        sums[MF_MINIBATCHES] += 1;
        if (s->target_kl >= 0 && stats[MF_KL] > s->target_kl)
            return 0;
        mf_backward(&u->actor, u->activation, u->x, n);
        mf_backward(&u->critic, u->activation, u->y, n);
        mf_step(u, s, ++step, sums);
    }
    return 1;
}

#endif
