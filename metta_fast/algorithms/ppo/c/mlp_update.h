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

#include "mlp_update_rows.h"

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

/* The gradients [from, to) of log_std: beyond its bounds only those count that lead back (box_head.py: _Bounded). */
static void mf_lead_back(const mf_update *u, float *grad, long from, long to)
{
    for (long j = from; j < to && j < u->width; j++) {
        const float raw = u->tensor[0].weight[j];
        if ((raw > MF_MOST_LOG_STD && grad[j] < 0) || (raw < MF_LEAST_LOG_STD && grad[j] > 0))
            grad[j] = 0;
    }
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
        mf_lead_back(u, total, from, to);
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
