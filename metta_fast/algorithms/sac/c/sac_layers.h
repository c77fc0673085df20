/* sac_layers.h: networks forward and backward for some rows, packing, and steps of tiles of weights.
 *
 * No guard: sac_update.h includes it for each instruction set (wide_product.h). */
#include "wide_product.h"

/* Writes rows [row, row + count) and columns [column, column + n) of a tensor's values, row-major at `from`, into its packed
 * copies; count is at most MF_ROWS, and row a multiple of it. */
MF_TARGET static void MF_T(pack)(const mf_tensor *t, const float *from, float *direct, float *across, int row, int count,
                                 int column, int n)
{
    if (direct) { /* columns are within one panel */
        const int first = column / MF_PANEL * MF_PANEL, width = MF_T(width)(t->columns, first);
        for (int i = 0; i < count; i++)
            memcpy(direct + (long)first * t->rows + (long)(row + i) * width + column - first,
                   from + (long)(row + i) * t->columns + column, sizeof(float) * n);
    }
    if (!across)
        return;
    const int rows = t->rows - t->across_from;
    for (int i = 0; i < count; i++) {
        const int at = row + i - t->across_from;
        if (at < 0)
            continue;
        const int first = at / MF_PANEL * MF_PANEL, width = MF_T(width)(rows, first);
        float *to = across + (long)first * t->columns + (long)column * width + at - first;
        const float *values = from + (long)(row + i) * t->columns + column;
        for (int j = 0; j < n; j++)
            to[(long)j * width] = values[j];
    }
}

/* Packs a whole tensor and its target. */
MF_TARGET static void MF_T(pack_tensor)(const mf_tensor *t)
{
    for (int row = 0; row < t->rows; row++)
        for (int column = 0; column < t->columns; column += MF_PANEL) {
            const int n = t->columns - column < MF_PANEL ? t->columns - column : MF_PANEL;
            MF_T(pack)(t, t->weight, t->direct, t->across, row, 1, column, n);
            if (t->target)
                MF_T(pack)(t, t->target, t->target_direct, t->target_across, row, 1, column, n);
        }
}

MF_TARGET static void MF_T(pack_net)(const mf_mlp *net)
{
    for (int l = 0; l < net->layers; l++)
        MF_T(pack_tensor)(&net->layer[l].weight), MF_T(pack_tensor)(&net->layer[l].bias);
}

/* Applies the activation to n rows of MF_UP(columns) floats. */
MF_TARGET static void MF_T(activate)(int kind, float *x, int n, int columns, long ld)
{
    for (int r = 0; r < n; r++)
        mf_activate(kind, x + r * ld, MF_UP(columns));
}

MF_TARGET static void MF_T(activate_gradient)(int kind, const float *y, float *grad, int n, int columns, long ld)
{
    for (int r = 0; r < n; r++)
        mf_activate_gradient(kind, y + r * ld, grad + r * ld, MF_UP(columns));
}

/* Computes rows [lo, hi) of a network, or of its target, from its input x. */
MF_TARGET static void MF_T(forward)(mf_mlp *net, int target, const float *x, long ldx, int lo, int hi)
{
    for (int l = 0; l < net->layers; l++) {
        const mf_layer *layer = &net->layer[l];
        const float *from = l ? net->out[l - 1] + lo * net->ld[l - 1] : x + lo * ldx;
        float *to = net->out[l] + lo * net->ld[l];
        MF_T(product)(hi - lo, layer->outputs, layer->inputs, from, l ? net->ld[l - 1] : ldx,
                      target ? layer->target : layer->forward, target ? layer->bias.target_direct : layer->bias.direct, to,
                      net->ld[l]);
        if (l + 1 < net->layers)
            MF_T(activate)(net->activation, to, hi - lo, layer->outputs, net->ld[l]);
    }
}

/* Computes grad[layers − 2] … grad[0] of rows [lo, hi) from grad[layers − 1]. */
MF_TARGET static void MF_T(backward)(mf_mlp *net, int lo, int hi)
{
    for (int l = net->layers - 1; l > 0; l--) {
        const mf_layer *layer = &net->layer[l];
        float *to = net->grad[l - 1] + lo * net->ld[l - 1];
        MF_T(product)(hi - lo, layer->inputs, layer->outputs, net->grad[l] + lo * net->ld[l], net->ld[l], layer->backward, 0,
                      to, net->ld[l - 1]);
        MF_T(activate_gradient)(net->activation, net->out[l - 1] + lo * net->ld[l - 1], to, hi - lo, layer->inputs,
                                net->ld[l - 1]);
    }
}

/* Adam on n numbers, then their targets. */
MF_TARGET static void MF_T(adam)(const mf_factors *f, const float *restrict grad, float *restrict weight,
                                 float *restrict first, float *restrict second, float *restrict target, int n)
{
    for (int j = 0; j < n; j++) {
        const float g = grad[j] * f->scale;
        first[j] += f->keep1 * (g - first[j]);
        second[j] = f->decay * second[j] + f->keep2 * g * g;
        weight[j] -= f->rate * first[j] / (sqrtf(second[j]) * f->root + f->epsilon);
    }
    if (target && f->follow > 0)
        for (int j = 0; j < n; j++)
            target[j] += f->follow * (weight[j] - target[j]);
}

/* Steps a tile of a tensor: its gradient over all rows of the batch, Adam, the target, the packed copies. */
MF_TARGET static void MF_T(step)(const mf_factors *f, const mf_tile *tile, int rows)
{
    const mf_tensor *t = tile->tensor;
    float grad[MF_ROWS * MF_PANEL];
    const int column = tile->column, width = MF_T(width)(t->columns, column);
    const int n = t->columns - column < width ? t->columns - column : width;
    if (tile->row < 0) {
        memset(grad, 0, sizeof grad);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < width; j++)
                grad[j] += tile->by_column[r * tile->ld_column + column + j];
    }
    for (int row = tile->row < 0 ? 0 : tile->row; row < tile->last_row; row += MF_ROWS) {
        const int count = t->rows - row < MF_ROWS ? t->rows - row : MF_ROWS;
        if (tile->row >= 0)
            MF_T(columns)(width, rows, tile->by_row + row, 1, tile->ld_row, tile->by_column + column, tile->ld_column, 0,
                          grad, MF_PANEL);
        for (int i = 0; i < count; i++) {
            const long at = (long)(row + i) * t->columns + column;
            MF_T(adam)(f, grad + i * MF_PANEL, t->weight + at, t->first + at, t->second + at,
                       t->target ? t->target + at : 0, n);
        }
        MF_T(pack)(t, t->weight, t->direct, t->across, row, count, column, n);
        if (t->target && f->follow > 0)
            MF_T(pack)(t, t->target, t->target_direct, t->target_across, row, count, column, n);
    }
}

/* Lists the tiles of a network whose input is x; returns their number. tiles NULL: only counts them. */
MF_TARGET static int MF_T(list_tiles)(mf_mlp *net, const float *x, long ldx, mf_tile *tiles)
{
    int count = 0;
    for (int l = 0; l < net->layers; l++) {
        mf_tensor *w = &net->layer[l].weight, *b = &net->layer[l].bias;
        const float *in = l ? net->out[l - 1] : x, *grad = net->grad[l];
        const long ld_in = l ? net->ld[l - 1] : ldx, ld_grad = net->ld[l];
        for (int column = 0; column < w->columns; column += MF_PANEL)
            for (int row = 0; row < w->rows; row += 128, count++) {
                mf_tile tile = {.tensor = w, .column = column, .row = row};
                tile.last_row = row + 128 < w->rows ? row + 128 : w->rows;
                tile.by_row = net->linear ? grad : in, tile.ld_row = net->linear ? ld_grad : ld_in;
                tile.by_column = net->linear ? in : grad, tile.ld_column = net->linear ? ld_in : ld_grad;
                if (tiles)
                    tiles[count] = tile;
            }
        for (int column = 0; column < b->columns; column += MF_PANEL, count++)
            if (tiles)
                tiles[count] = (mf_tile){.tensor = b, .column = column, .row = -1, .last_row = 1, .by_column = grad,
                                         .ld_column = ld_grad};
    }
    return count;
}
