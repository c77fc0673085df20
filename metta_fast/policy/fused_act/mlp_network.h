/* A network of two hidden layers on the CPU, a tile of rows at a time, so that all of a tile's numbers stay in the cache:
 *
 *   floats or bytes ─► dense or sparse first layer ─► f ─► second layer ─► f ─► last layer
 *
 * policy/network.py is the reference in torch. c_act.h uses this for rollouts, algorithms/ppo/c/mlp_update.h for updates.
 */
#ifndef MF_MLP_NETWORK_H
#define MF_MLP_NETWORK_H

#include <math.h>
#include <stdlib.h>

#include "../../runtime/c/dense_layers.h"
#include "../grid/sparse_layer.h"

enum { MF_TILE = 64, MF_MOST_HEADS = 16 }; /* rows of a tile */
enum { MF_W1, MF_B1, MF_W2, MF_B2, MF_W3, MF_B3, MF_TENSORS };

typedef float mf_row[MF_TILE]; /* one number of each row: loops over a tile's rows become vectors */

/* Sizes, the addresses of the weights, and copies of them for the products. The weights are [outputs, inputs], but for a
 * sparse first layer [columns, hidden]. */
typedef struct {
    int layout; /* of a sparse first layer (grid/layout.h); -1: the first layer is dense */
    int inputs, hidden, outputs, activation;
    int padded_in, padded_out;
    long bytes, ldw;
    const float *scale;               /* of a sparse first layer: float32 [256] */
    const float *weight[MF_TENSORS];
    float *t1, *t2, *s2, *t3, *bias3; /* w1, w2 and w3 transposed, w2 with rows ldw apart, b3 padded */
} mf_net;

/* Numbers of a tile's rows: x [MF_TILE, padded_in], h1, h2 and d [MF_TILE, hidden], out [MF_TILE, padded_out],
 * logit and exp [padded_out] rows. */
typedef struct {
    float *x, *h1, *h2, *d, *out;
    mf_row *logit, *exp;
} mf_tile;

MF_INLINE int mf_pad(int n) { return (n + 7) / 8 * 8; }

/* n zeros, a cache line aligned; NULL: no memory. */
static float *mf_floats(long n)
{
    void *memory = 0;
    return posix_memalign(&memory, 64, sizeof(float) * (n + 16)) ? 0 : memset(memory, 0, sizeof(float) * (n + 16));
}

static void mf_net_free(mf_net *net)
{
    free(net->t2);
}

/* Allocates the network's copies; layout, inputs, hidden and outputs must be set. 0: no memory. */
static int mf_net_make(mf_net *net)
{
    ptrdiff_t bytes = 0;
    if (net->layout >= 0)
        mf_layout(net->layout, &bytes);
    net->bytes = bytes, net->ldw = net->hidden + 8; /* not a power of two: rows would share few sets of the cache */
    net->padded_in = mf_pad(net->inputs), net->padded_out = mf_pad(net->outputs);
    const long square = net->hidden * net->ldw, last = (long)net->hidden * net->padded_out;
    net->t2 = mf_floats(2 * square + last + net->padded_out + net->inputs * net->ldw);
    if (!net->t2)
        return 0;
    net->s2 = net->t2 + square, net->t3 = net->s2 + square, net->bias3 = net->t3 + last;
    net->t1 = net->bias3 + net->padded_out;
    return 1;
}

/* Copies the present weights. */
static void mf_net_pack(mf_net *net)
{
    const float *w1 = net->weight[MF_W1], *w2 = net->weight[MF_W2], *w3 = net->weight[MF_W3];
    for (int i = 0; i < net->hidden; i++)
        for (int j = 0; j < net->inputs; j++)
            net->t1[j * net->ldw + i] = w1[(long)i * net->inputs + j];
    for (int i = 0; i < net->hidden; i++)
        for (int j = 0; j < net->hidden; j++)
            net->t2[j * net->ldw + i] = net->s2[i * net->ldw + j] = w2[(long)i * net->hidden + j];
    for (int i = 0; i < net->outputs; i++)
        for (int j = 0; j < net->hidden; j++)
            net->t3[(long)j * net->padded_out + i] = w3[(long)i * net->hidden + j];
    memcpy(net->bias3, net->weight[MF_B3], sizeof(float) * net->outputs);
}

static void mf_tile_free(mf_tile *tile)
{
    free(tile->h1);
}

/* Allocates a tile for `net`; 0: no memory. */
static int mf_tile_make(mf_tile *tile, const mf_net *net)
{
    const long wide = (long)MF_TILE * net->hidden, narrow = (long)MF_TILE * net->padded_out;
    tile->h1 = mf_floats(3 * wide + 3 * narrow + (long)MF_TILE * net->padded_in);
    if (!tile->h1)
        return 0;
    tile->h2 = tile->h1 + wide, tile->d = tile->h2 + wide, tile->out = tile->d + wide;
    tile->logit = (mf_row *)(tile->out + narrow), tile->exp = (mf_row *)(tile->out + 2 * narrow);
    tile->x = tile->out + 3 * narrow;
    return 1;
}

/* From the first layer's sums in h1 to the last layer's outputs in out. */
static void mf_net_forward(const mf_net *net, mf_tile *tile, int rows)
{
    const int hidden = net->hidden, out = net->padded_out;
    mf_activate(net->activation, tile->h1, (long)rows * hidden);
    mf_product(rows, hidden, hidden, tile->h1, hidden, 1, net->t2, net->ldw, net->weight[MF_B2], tile->h2, hidden);
    mf_activate(net->activation, tile->h2, (long)rows * hidden);
    mf_product(rows, out, hidden, tile->h2, hidden, 1, net->t3, out, net->bias3, tile->out, out);
}

/* The outputs by column, in logit; rows past `rows` are 0. */
static void mf_logits(const mf_net *net, mf_tile *tile, int rows)
{
    for (int r = 0; r < MF_TILE; r++)
        for (int j = 0; j < net->outputs; j++)
            tile->logit[j][r] = r < rows ? tile->out[(long)r * net->padded_out + j] : 0.0f;
}

/* A head's choices: e = exp(logit - top) and its sum over them. */
static void mf_softmax(const mf_row *logit, int choices, mf_row *e, float *top, float *sum)
{
    for (int r = 0; r < MF_TILE; r++)
        top[r] = logit[0][r], sum[r] = 0;
    for (int j = 1; j < choices; j++)
        for (int r = 0; r < MF_TILE; r++)
            top[r] = logit[j][r] > top[r] ? logit[j][r] : top[r];
    for (int j = 0; j < choices; j++)
        for (int r = 0; r < MF_TILE; r++) {
            e[j][r] = mf_exp(logit[j][r] - top[r]);
            sum[r] += e[j][r];
        }
}

#endif
