/* The memory of updates of SAC and TD3 in C (sac_update.h): networks with packed weights, activations, a chunk's inputs. */
#ifndef MF_SAC_STATE_H
#define MF_SAC_STATE_H

#include "dense_layers.h"
#include "thread_team.h"
#include <math.h>

enum { MF_MOST_LAYERS = 18, MF_MOST_LEAVES = 16, MF_FLOATS = 16 };
enum { MF_VALUE, MF_Q, MF_UPDATES, MF_POLICY, MF_ENTROPY, MF_TEMPERATURE, MF_ACTOR_UPDATES, MF_SAC_SUMS };

#define MF_LEAST_LOG_STD -10.0f
#define MF_MOST_LOG_STD 2.0f
#define MF_HALF_LOG_2PI 0.918938533f
#define MF_LIMIT 10.0f /* of normalised observations (policy/normalize.py) */

/* A tensor [rows, columns] with Adam's moments, and a slow copy (target; NULL: none). `direct` is packed for a product whose
 * inner length is `rows`; `across`, of the rows from across_from on, for one whose inner length is `columns`. */
typedef struct {
    float *weight, *first, *second, *target;
    int rows, columns, across_from;
    float *direct, *across, *target_direct, *target_across;
} mf_tensor;

typedef struct {
    int inputs, outputs;
    mf_tensor weight, bias; /* the bias: one row; its packed copies are padded ones */
    const float *forward, *backward, *target; /* packed copies by use; backward NULL: no gradient of the input */
} mf_layer;

/* Layers with an activation between them. out[l] is layer l's output after its activation, grad[l] the gradient of the one
 * before it, [batch, ld[l]]. */
typedef struct {
    int layers, linear, activation; /* linear: weights are [outputs, inputs], as torch.nn.Linear's; else [inputs, outputs] */
    mf_layer layer[MF_MOST_LAYERS];
    float *out[MF_MOST_LAYERS], *grad[MF_MOST_LAYERS];
    long ld[MF_MOST_LAYERS];
} mf_mlp;

/* A leaf of the observation, `size` floats a row; shift NULL: it is not normalised. */
typedef struct {
    const float *rows, *shift, *scale;
    int size;
} mf_leaf;

typedef struct {
    mf_leaf leaf[MF_MOST_LEAVES];
    int leaves, size;
} mf_view;

/* The transitions of one update: rows of the leaves, [batch] each; noise [draws, batch, width]. */
typedef struct {
    const int64_t *index, *after;
    const float *action; /* all rows of the replay buffer */
    const float *reward, *discount, *weight, *noise;
} mf_batch;

typedef struct {
    double rate, beta1, beta2, epsilon;
} mf_rates;

typedef struct {
    float keep1, keep2, rate, root, epsilon; /* 1 − β₁, 1 − β₂, η / (1 − β₁ᵗ), 1 / √(1 − β₂ᵗ), ε */
    float decay, scale, follow;              /* β₂; of the gradients; τ, 0: the target stays */
} mf_factors;

typedef struct {
    int width, squash, soft; /* of an action; soft: SAC, else TD3 */
    int state_std;           /* the spread depends on the observation */
    float noise, clip;       /* of TD3's target actions */
    float target_entropy, tau;
    int adapts, delay;
} mf_rule;

typedef struct {
    mf_tensor *tensor;
    int column, row, last_row; /* row −1: a bias */
    const float *by_row, *by_column;
    long ld_row, ld_column;
} mf_tile;

typedef struct {
    mf_rule rule;
    int members, batch, rows; /* rows: batch, padded */
    mf_mlp actor, *critic;
    mf_tensor log_std; /* rows 0: none */
    float *log_std_row;
    mf_view actor_view, critic_view;
    float *actor_x[2], *critic_x[3]; /* s, s′; (s, a), (s′, a′), (s, ã) */
    long ld_actor, ld_critic, ld_width;
    float *spread_grad, *action_grad, *slope, *density; /* [rows, ld_width]; density [rows] */
    float *next, *q;                                    /* y [rows]; [members, rows] */
    float *loss, *mean_q;                               /* [rows]: each row's part */
    float *log_alpha, *log_alpha_first, *log_alpha_second;
    mf_tile *critic_tile, *actor_tile;
    int critic_tiles, actor_tiles, part; /* part: rows of a piece of work */
    mf_team team;
    const mf_batch *at;
    mf_factors factors;
    float alpha;
    int wide; /* which instruction set the packed copies are for */
} mf_sac;

static float *mf_floats(long n) {
    const size_t bytes = ((size_t)(n < 1 ? 1 : n) * sizeof(float) + MF_LINE - 1) / MF_LINE * MF_LINE;
    float *found = aligned_alloc(MF_LINE, bytes);
    if (found)
        memset(found, 0, bytes);
    return found;
}

static long mf_up(long n, long by) { return (n + by - 1) / by * by; }

/* Floats between rows of n: an odd multiple of a cache line, so that columns are spread over the cache's sets. */
static long mf_apart(long n) {
    const long ld = mf_up(n, MF_FLOATS) + MF_FLOATS;
    return ld / MF_FLOATS % 2 ? ld : ld + MF_FLOATS;
}

static void mf_tensor_free(mf_tensor *t) {
    free(t->direct), free(t->across), free(t->target_direct), free(t->target_across);
}

static void mf_mlp_free(mf_mlp *net) {
    for (int l = 0; l < net->layers; l++) {
        mf_tensor_free(&net->layer[l].weight), mf_tensor_free(&net->layer[l].bias);
        free(net->out[l]), free(net->grad[l]);
    }
}

static void mf_sac_free(mf_sac *u) {
    mf_team_free(&u->team);
    mf_mlp_free(&u->actor);
    for (int e = 0; u->critic && e < u->members; e++)
        mf_mlp_free(&u->critic[e]);
    free(u->critic), free(u->log_std_row);
    for (int i = 0; i < 2; i++)
        free(u->actor_x[i]);
    for (int i = 0; i < 3; i++)
        free(u->critic_x[i]);
    free(u->spread_grad), free(u->action_grad), free(u->slope), free(u->density), free(u->next), free(u->q);
    free(u->loss), free(u->mean_q), free(u->critic_tile), free(u->actor_tile);
    free(u);
}

/* Allocates a layer's packed copies. action_from: the first input whose gradient is needed; −1: none is. */
static int mf_layer_make(mf_layer *layer, int linear, int gradient_from, int has_target) {
    mf_tensor *w = &layer->weight, *b = &layer->bias;
    const int in = layer->inputs, out = layer->outputs;
    w->rows = linear ? out : in, w->columns = linear ? in : out;
    b->rows = 1, b->columns = out;
    const long forward = mf_up(out, MF_FLOATS) * in, backward = mf_up(in, MF_FLOATS) * out, bias = mf_up(out, MF_FLOATS);
    const int back = gradient_from >= 0;
    w->across_from = linear || !back ? 0 : gradient_from;
    int whole = (b->direct = mf_floats(bias)) != 0;
    if (linear) {
        whole = whole && (w->across = mf_floats(forward)) && (!back || (w->direct = mf_floats(backward)));
        layer->forward = w->across, layer->backward = w->direct;
        whole = whole && (!has_target || (w->target_across = mf_floats(forward)));
        layer->target = w->target_across;
    } else {
        whole = whole && (w->direct = mf_floats(forward)) && (!back || (w->across = mf_floats(backward)));
        layer->forward = w->direct, layer->backward = w->across;
        whole = whole && (!has_target || (w->target_direct = mf_floats(forward)));
        layer->target = w->target_direct;
    }
    return whole && (!has_target || (b->target_direct = mf_floats(bias)));
}

/* Allocates a network of sizes [layers + 1]. gradient_from: as of the first layer's; the others' inputs have gradients. */
static int mf_mlp_make(mf_mlp *net, const int *sizes, int layers, int linear, int activation, int rows, int gradient_from,
                       int has_target) {
    net->layers = layers, net->linear = linear, net->activation = activation;
    int whole = 1;
    for (int l = 0; l < layers; l++) {
        mf_layer *layer = &net->layer[l];
        layer->inputs = sizes[l], layer->outputs = sizes[l + 1];
        net->ld[l] = mf_apart(sizes[l + 1]);
        net->out[l] = mf_floats(rows * net->ld[l]), net->grad[l] = mf_floats(rows * net->ld[l]);
        whole = mf_layer_make(layer, linear, l ? 0 : gradient_from, has_target) && net->out[l] && net->grad[l] && whole;
    }
    return whole;
}

#endif
