/* The rollout's arrays, PPO's loss of a row and Adam, for the update in C (mlp_update.h).
 *
 * loss.py and step.py are the reference in torch.
 */
#ifndef MF_PPO_LOSS_H
#define MF_PPO_LOSS_H

#include <math.h>
#include <stdint.h>

#include "../../../runtime/c/dense_layers.h"

enum { MF_POLICY, MF_VALUE, MF_ENTROPY, MF_KL, MF_CLIPPED, MF_NORM, MF_MINIBATCHES, MF_STEPS, MF_SUMS };

/* The rollout's arrays but for observations and actions, flat: row r is row r of each. */
typedef struct {
    const float *logprob, *value, *advantage, *returns;
    const uint8_t *mask;
} mf_rows;

typedef struct {
    float clip, vf_coef, vf_clip, entropy_coef, max_norm, target_kl; /* vf_clip, target_kl < 0: none */
    double rate, beta1, beta2, epsilon;
    int normalize_advantage;
} mf_settings;

/* A minibatch's advantages become (advantage - mean) / deviation. */
typedef struct {
    double mean, deviation;
} mf_scale;

/* Of the n unmasked rows listed; mean 0 and deviation 1 where advantages stay as they are. (Its least share of the mean
 * and what is added: LEAST_DEVIATION and EPSILON of loss_terms.py.) */
static mf_scale mf_advantage_scale(const mf_rows *from, const mf_settings *s, const int64_t *row, int n)
{
    double mean = 0, square = 0;
    if (!s->normalize_advantage)
        return (mf_scale){0, 1};
    for (int b = 0; b < n; b++)
        mean += from->advantage[row[b]] / (double)n;
    for (int b = 0; b < n; b++)
        square += (from->advantage[row[b]] - mean) * (from->advantage[row[b]] - mean) / n;
    return (mf_scale){mean, fmax(sqrt(square), 1e-5 * fabs(mean)) + 1e-8};
}

/* The loss of one row, a share `each` of the minibatch, from its new log-probability and value: added to stats, with
 * the gradients by those two. */
MF_INLINE void mf_row_loss(const mf_rows *from, const mf_settings *s, mf_scale scale, double each, int64_t row,
                           float logprob, float value, double *stats, float *by_logprob, float *by_value)
{
    const float advantage = (float)((from->advantage[row] - scale.mean) / scale.deviation);
    const float log_ratio = logprob - from->logprob[row], ratio = expf(log_ratio);
    const float low = 1 - s->clip, high = 1 + s->clip;
    const float clipped = ratio < low ? low : ratio > high ? high : ratio;
    const int bound = clipped * advantage < ratio * advantage; /* the clip holds: no gradient */
    *by_logprob = bound ? 0.0f : (float)(-each * advantage * ratio);
    stats[MF_POLICY] -= each * (bound ? clipped * advantage : ratio * advantage);
    stats[MF_KL] += each * (ratio - 1 - log_ratio);
    stats[MF_CLIPPED] += fabsf(ratio - 1) > s->clip ? each : 0;
    const float old = from->value[row], returns = from->returns[row];
    float error = (value - returns) * (value - returns), slope = 2 * (value - returns);
    if (s->vf_clip >= 0 && fabsf(value - old) > s->vf_clip) {
        const float near = old + (value > old ? s->vf_clip : -s->vf_clip);
        if ((near - returns) * (near - returns) > error)
            error = (near - returns) * (near - returns), slope = 0;
    }
    stats[MF_VALUE] += 0.5 * each * error;
    *by_value = (float)(0.5 * s->vf_coef * each) * slope;
}

/* What gradients of this norm are multiplied by. */
static float mf_shrink(const mf_settings *s, float norm)
{
    const float shrink = s->max_norm > 0 ? s->max_norm / (norm + 1e-6f) : 1.0f;
    return shrink > 1 ? 1.0f : shrink;
}

/* Adam's factors of one step. */
typedef struct {
    float shrink, beta1, beta2, rest1, rest2, epsilon, size, root;
} mf_adam;

/* Of step number `step`, with gradients times `shrink`. */
static mf_adam mf_adam_at(const mf_settings *s, double step, float shrink)
{
    return (mf_adam){.shrink = shrink, .beta1 = (float)s->beta1, .beta2 = (float)s->beta2,
                     .rest1 = (float)(1 - s->beta1), .rest2 = (float)(1 - s->beta2), .epsilon = (float)s->epsilon,
                     .size = (float)(s->rate / (1 - pow(s->beta1, step))),
                     .root = (float)(1 / sqrt(1 - pow(s->beta2, step)))};
}

/* The step of n weights w with moments m and v. */
static void mf_adam_step(const mf_adam *a, long n, const float *grad, float *restrict w, float *restrict m,
                         float *restrict v)
{
    const mf_adam f = *a;
    for (long j = 0; j < n; j++) {
        const float g = grad[j] * f.shrink;
        m[j] = f.beta1 * m[j] + f.rest1 * g;
        v[j] = f.beta2 * v[j] + f.rest2 * g * g;
        w[j] -= f.size * m[j] / (sqrtf(v[j]) * f.root + f.epsilon);
    }
}

#endif
