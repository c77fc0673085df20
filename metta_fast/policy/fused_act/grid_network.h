/* cpu_grid.h: a grid policy without memory on the CPU, a tile of rows at a time so that all of it stays in the cache.
 *
 *   bytes ─► pairs ─► sparse first layer ─► relu ─► second layer ─► relu ─► logits of each head, value
 *
 * network.py is the same in torch, and what is right. Called by cpu_act.py for rollouts, by ppo/grid_update.h for updates.
 */
#ifndef MF_CPU_GRID_H
#define MF_CPU_GRID_H

#include <math.h>
#include <stdlib.h>

#include "../../runtime/c/dense_layers.h"
#include "../grid/sparse_layer.h"

enum { MF_TILE = 64, MF_MOST_HEADS = 16 }; /* rows of a tile */

typedef float mf_row[MF_TILE]; /* one number of each row: loops over a tile's rows become vectors */

/* Where the weights lie: w1 [columns, hidden], w2 [hidden, hidden], w3 [outputs, hidden]; and copies for products. */
typedef struct {
    int layout, hidden, outputs, padded, heads, nvec[MF_MOST_HEADS];
    long bytes, ldw;
    const float *scale, *w1, *b1, *w2, *b2, *w3, *b3;
    float *t2, *s2, *t3, *bias3; /* w2 and w3 transposed, w2 as it is with rows ldw apart, b3 padded */
} mf_grid_net;

/* A tile's numbers: [MF_TILE, hidden] each, [MF_TILE, padded], [padded] rows. */
typedef struct {
    float *h1, *h2, *d, *out;
    mf_row *logit, *exp;
} mf_grid_tile;

static float *mf_floats(long n)
{
    void *memory = 0;
    return posix_memalign(&memory, 64, sizeof(float) * (n + 16)) ? 0 : memset(memory, 0, sizeof(float) * (n + 16));
}

static void mf_grid_net_free(mf_grid_net *net)
{
    free(net->t2);
}

/* The network's own copies; 0: no memory. Sizes must be set. */
static int mf_grid_net_make(mf_grid_net *net)
{
    ptrdiff_t bytes;
    mf_layout(net->layout, &bytes);
    net->bytes = bytes, net->ldw = net->hidden + 8; /* off a power of two: sets of a cache */
    net->padded = (net->outputs + 7) / 8 * 8;
    const long square = net->hidden * net->ldw, last = (long)net->hidden * net->padded;
    net->t2 = mf_floats(2 * square + last + net->padded);
    if (!net->t2)
        return 0;
    net->s2 = net->t2 + square, net->t3 = net->s2 + square, net->bias3 = net->t3 + last;
    return 1;
}

/* Take in the weights as they are now. */
static void mf_grid_net_pack(mf_grid_net *net)
{
    for (int i = 0; i < net->hidden; i++)
        for (int j = 0; j < net->hidden; j++)
            net->t2[j * net->ldw + i] = net->s2[i * net->ldw + j] = net->w2[(long)i * net->hidden + j];
    for (int i = 0; i < net->outputs; i++)
        for (int j = 0; j < net->hidden; j++)
            net->t3[(long)j * net->padded + i] = net->w3[(long)i * net->hidden + j];
    memcpy(net->bias3, net->b3, sizeof(float) * net->outputs);
}

static void mf_grid_tile_free(mf_grid_tile *tile)
{
    free(tile->h1);
}

/* 0: no memory. */
static int mf_grid_tile_make(mf_grid_tile *tile, const mf_grid_net *net)
{
    const long wide = (long)MF_TILE * net->hidden, narrow = (long)MF_TILE * net->padded;
    tile->h1 = mf_floats(3 * wide + 3 * narrow);
    if (!tile->h1)
        return 0;
    tile->h2 = tile->h1 + wide, tile->d = tile->h2 + wide, tile->out = tile->d + wide;
    tile->logit = (mf_row *)(tile->out + narrow), tile->exp = (mf_row *)(tile->out + 2 * narrow);
    return 1;
}

/* Everything after the first layer, which left its sums in h1: logits [outputs] of the rows, the value last. */
static void mf_grid_forward(const mf_grid_net *net, mf_grid_tile *tile, int rows)
{
    const int hidden = net->hidden;
    mf_activate(MF_RELU, tile->h1, (long)rows * hidden);
    mf_product(rows, hidden, hidden, tile->h1, hidden, 1, net->t2, net->ldw, net->b2, tile->h2, hidden);
    mf_activate(MF_RELU, tile->h2, (long)rows * hidden);
    mf_product(rows, net->padded, hidden, tile->h2, hidden, 1, net->t3, net->padded, net->bias3, tile->out,
               net->padded);
    for (int r = 0; r < MF_TILE; r++)
        for (int j = 0; j < net->outputs; j++)
            tile->logit[j][r] = r < rows ? tile->out[(long)r * net->padded + j] : 0.0f;
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
