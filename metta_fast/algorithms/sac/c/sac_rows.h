/* sac_rows.h: what an update does row by row: transitions in, targets, the critics' gradients, then the actor's.
 *
 * No guard: sac_update.h includes it for each instruction set (wide_product.h). */
#include "sac_layers.h"

/* Reads a row of the replay buffer as a network's first layer does, into x. */
MF_TARGET static void MF_T(read)(const mf_view *view, int64_t row, float *x)
{
    for (int i = 0; i < view->leaves; i++) {
        const mf_leaf *leaf = &view->leaf[i];
        const float *obs = leaf->rows + row * leaf->size;
        if (!leaf->shift)
            memcpy(x, obs, sizeof(float) * leaf->size);
        else
            for (int j = 0; j < leaf->size; j++) {
                const float value = (obs[j] - leaf->shift[j]) * leaf->scale[j];
                x[j] = value < -MF_LIMIT ? -MF_LIMIT : value > MF_LIMIT ? MF_LIMIT : value;
            }
        x += leaf->size;
    }
}

/* tanh of n numbers, and the log of its slope, log(1 − tanh² x) = 2 (log 2 − |x| − log(1 + e^(−2|x|))). */
MF_TARGET static void MF_T(squash)(const float *x, float *y, float *slope, int n)
{
    for (int j = 0; j < n; j++) {
        const float size = fabsf(x[j]), e = mf_exp(-2.0f * size);
        y[j] = x[j] != x[j] ? x[j] : copysignf((1.0f - e) / (1.0f + e), x[j]);
        slope[j] = 2.0f * (0.693147181f - size - log1pf(e));
    }
}

/* Rows [lo, hi) of the batch into x; rows beyond it are zeros. */
MF_TARGET static void MF_T(gather)(mf_sac *u, int lo, int hi)
{
    const mf_batch *b = u->at;
    const int w = u->rule.width, size = u->critic_view.size;
    for (int r = lo; r < hi && r < u->batch; r++) {
        if (r + 2 < u->batch) {
            __builtin_prefetch(u->critic_view.leaf[0].rows + b->index[r + 2] * u->critic_view.leaf[0].size);
            __builtin_prefetch(u->critic_view.leaf[0].rows + b->after[r + 2] * u->critic_view.leaf[0].size);
            __builtin_prefetch(b->action + b->index[r + 2] * w);
        }
        float *x = u->critic_x[0] + r * u->ld_critic, slope[MF_FLOATS];
        MF_T(read)(&u->critic_view, b->index[r], x);
        memcpy(u->critic_x[2] + r * u->ld_critic, x, sizeof(float) * size);
        MF_T(read)(&u->critic_view, b->after[r], u->critic_x[1] + r * u->ld_critic);
        MF_T(read)(&u->actor_view, b->index[r], u->actor_x[0] + r * u->ld_actor);
        MF_T(read)(&u->actor_view, b->after[r], u->actor_x[1] + r * u->ld_actor);
        const float *action = b->action + b->index[r] * w;
        if (!u->rule.squash)
            memcpy(x + size, action, sizeof(float) * w);
        else
            for (int j = 0; j < w; j += MF_FLOATS)
                MF_T(squash)(action + j, x + size + j, slope, w - j < MF_FLOATS ? w - j : MF_FLOATS);
    }
}

/* Row r's actions from the actor's output, in the critic's unit, into x; keeps what the gradients need. Returns
 * log π, or 0 for TD3. noise [width]; smooth: it is TD3's, of a target action. */
MF_TARGET static float MF_T(act)(mf_sac *u, int r, const float *noise, int smooth, float *x)
{
    const int w = u->rule.width, l = u->actor.layers - 1;
    const float *mean = u->actor.out[l] + r * u->actor.ld[l], *raw = u->rule.state_std ? mean + w : u->log_std.weight;
    float *slope = u->slope + r * u->ld_width, log_density = 0;
    if (!u->rule.soft) {
        for (int j = 0; j < w; j++)
            x[j] = mean[j];
        if (u->rule.squash)
            MF_T(squash)(x, x, slope, w);
        for (int j = 0; smooth && j < w; j++) {
            const float limit = u->rule.clip, size = noise[j] * u->rule.noise;
            x[j] += size < -limit ? -limit : size > limit ? limit : size;
            if (u->rule.squash)
                x[j] = x[j] < -1 ? -1 : x[j] > 1 ? 1 : x[j];
        }
        return 0;
    }
    float *spread = u->spread_grad + r * u->ld_width;
    for (int j = 0; j < w; j++) {
        const float log_std = raw[j] < MF_LEAST_LOG_STD ? MF_LEAST_LOG_STD : raw[j] > MF_MOST_LOG_STD ? MF_MOST_LOG_STD : raw[j];
        spread[j] = noise[j] * mf_exp(log_std);
        x[j] = mean[j] + spread[j];
        log_density += -0.5f * noise[j] * noise[j] - log_std - MF_HALF_LOG_2PI;
    }
    if (u->rule.squash) {
        MF_T(squash)(x, x, slope, w);
        for (int j = 0; j < w; j++)
            log_density -= slope[j];
    }
    return log_density;
}

/* The critics' target of rows [lo, hi), and their gradients. */
MF_TARGET static void MF_T(critic_rows)(mf_sac *u, int lo, int hi)
{
    const mf_batch *b = u->at;
    MF_T(gather)(u, lo, hi);
    MF_T(forward)(&u->actor, !u->rule.soft, u->actor_x[1], u->ld_actor, lo, hi);
    for (int r = lo; r < hi && r < u->batch; r++) {
        const float *noise = b->noise + (long)r * u->rule.width;
        float *x = u->critic_x[1] + r * u->ld_critic + u->critic_view.size;
        u->density[r] = MF_T(act)(u, r, noise, 1, x);
    }
    const int last = u->critic[0].layers - 1;
    for (int e = 0; e < u->members; e++) {
        mf_mlp *net = &u->critic[e];
        MF_T(forward)(net, 1, u->critic_x[1], u->ld_critic, lo, hi);
        for (int r = lo; r < hi && r < u->batch; r++) {
            const float q = net->out[last][r * net->ld[last]], least = u->next[r];
            u->next[r] = !e || q < least || q != q ? q : least; /* NaN is kept */
        }
    }
    for (int r = lo; r < hi && r < u->batch; r++) {
        const float value = u->next[r] - u->alpha * u->density[r];
        u->next[r] = b->reward[r] + b->discount[r] * value;
        u->loss[r] = u->mean_q[r] = 0;
    }
    for (int e = 0; e < u->members; e++) {
        mf_mlp *net = &u->critic[e];
        MF_T(forward)(net, 0, u->critic_x[0], u->ld_critic, lo, hi);
        for (int r = lo; r < hi && r < u->batch; r++) {
            const float q = net->out[last][r * net->ld[last]], error = q - u->next[r];
            net->grad[last][r * net->ld[last]] = b->weight[r] * error;
            u->loss[r] += 0.5f * b->weight[r] * error * error;
            u->mean_q[r] += b->weight[r] * q / u->members;
        }
        MF_T(backward)(net, lo, hi);
    }
}

/* How much of the gradient of min Q (TD3: of Q_1) row r's critic e gets: amin shares it among equals. */
MF_TARGET static float MF_T(share)(const mf_sac *u, int r, int e)
{
    if (!u->rule.soft)
        return e == 0;
    int equal = 0;
    for (int i = 0; i < u->members; i++) {
        if (u->q[i * u->rows + r] < u->q[e * u->rows + r])
            return 0;
        equal += u->q[i * u->rows + r] == u->q[e * u->rows + r];
    }
    return 1.0f / (equal ? equal : 1);
}

/* The gradients of row r's actor outputs from that of the action. */
MF_TARGET static void MF_T(act_gradient)(mf_sac *u, int r)
{
    const int w = u->rule.width, l = u->actor.layers - 1;
    const float weight = u->at->weight[r], *x = u->critic_x[2] + r * u->ld_critic + u->critic_view.size;
    const float *mean = u->actor.out[l] + r * u->actor.ld[l], *raw = u->rule.state_std ? mean + w : u->log_std.weight;
    const float *of_action = u->action_grad + r * u->ld_width;
    float *grad = u->actor.grad[l] + r * u->actor.ld[l], *spread = u->spread_grad + r * u->ld_width;
    for (int j = 0; j < w; j++) {
        float g = of_action[j];
        if (u->rule.squash) {
            g *= 1.0f - x[j] * x[j];
            if (u->rule.soft)
                g += 2.0f * weight * u->alpha * x[j]; /* of −α log(1 − tanh²) */
        }
        grad[j] = g;
        if (!u->rule.soft)
            continue;
        const float s = g * spread[j] - weight * u->alpha;
        const int back = (raw[j] <= MF_MOST_LOG_STD || s > 0) && (raw[j] >= MF_LEAST_LOG_STD || s < 0);
        *(u->rule.state_std ? grad + w + j : spread + j) = back ? s : 0.0f;
    }
}

/* The actor's gradients of rows [lo, hi). */
MF_TARGET static void MF_T(actor_rows)(mf_sac *u, int lo, int hi)
{
    const mf_batch *b = u->at;
    const int w = u->rule.width, size = u->critic_view.size, last = u->critic[0].layers - 1;
    const long draw = u->rule.soft ? (long)u->batch * w : 0;
    const int asked = u->rule.soft ? u->members : 1;
    MF_T(forward)(&u->actor, 0, u->actor_x[0], u->ld_actor, lo, hi);
    for (int r = lo; r < hi && r < u->batch; r++)
        u->density[r] = MF_T(act)(u, r, b->noise + draw + (long)r * w, 0, u->critic_x[2] + r * u->ld_critic + size);
    for (int e = 0; e < asked; e++) {
        mf_mlp *net = &u->critic[e];
        MF_T(forward)(net, 0, u->critic_x[2], u->ld_critic, lo, hi);
        for (int r = lo; r < hi; r++)
            u->q[e * u->rows + r] = net->out[last][r * net->ld[last]];
    }
    for (int r = lo; r < hi && r < u->batch; r++) {
        float least = u->q[r];
        for (int e = 1; e < asked; e++)
            least = u->q[e * u->rows + r] < least ? u->q[e * u->rows + r] : least;
        u->loss[r] = b->weight[r] * (u->alpha * u->density[r] - least);
    }
    memset(u->action_grad + lo * u->ld_width, 0, sizeof(float) * (hi - lo) * u->ld_width);
    for (int e = 0; e < asked; e++) {
        mf_mlp *net = &u->critic[e];
        for (int r = lo; r < hi && r < u->batch; r++)
            net->grad[last][r * net->ld[last]] = -b->weight[r] * MF_T(share)(u, r, e);
        MF_T(backward)(net, lo, hi);
        float *to = u->slope + lo * u->ld_width; /* no longer needed */
        MF_T(product)(hi - lo, w, net->layer[0].outputs, net->grad[0] + lo * net->ld[0], net->ld[0], net->layer[0].backward, 0,
                      to, u->ld_width);
        for (long i = 0; i < (hi - lo) * u->ld_width; i++)
            u->action_grad[lo * u->ld_width + i] += to[i];
    }
    for (int r = lo; r < hi && r < u->batch; r++)
        MF_T(act_gradient)(u, r);
    MF_T(backward)(&u->actor, lo, hi);
}

MF_TARGET static int32_t MF_T(do_critic_rows)(void *context, int32_t lo, int32_t hi)
{
    mf_sac *u = context;
    for (int32_t i = lo; i < hi; i++)
        MF_T(critic_rows)(u, i * u->part, (i + 1) * u->part < u->rows ? (i + 1) * u->part : u->rows);
    return 0;
}

MF_TARGET static int32_t MF_T(do_actor_rows)(void *context, int32_t lo, int32_t hi)
{
    mf_sac *u = context;
    for (int32_t i = lo; i < hi; i++)
        MF_T(actor_rows)(u, i * u->part, (i + 1) * u->part < u->rows ? (i + 1) * u->part : u->rows);
    return 0;
}

MF_TARGET static int32_t MF_T(do_critic_step)(void *context, int32_t lo, int32_t hi)
{
    const mf_sac *u = context;
    for (int32_t i = lo; i < hi; i++)
        MF_T(step)(&u->factors, &u->critic_tile[i], u->rows);
    return 0;
}

MF_TARGET static int32_t MF_T(do_actor_step)(void *context, int32_t lo, int32_t hi)
{
    const mf_sac *u = context;
    for (int32_t i = lo; i < hi; i++)
        MF_T(step)(&u->factors, &u->actor_tile[i], u->rows);
    return 0;
}

/* Packs all weights. */
MF_TARGET static void MF_T(pack_all)(const mf_sac *u)
{
    MF_T(pack_net)(&u->actor);
    for (int e = 0; e < u->members; e++)
        MF_T(pack_net)(&u->critic[e]);
}

/* Lists the tiles of all networks. Returns 0 without memory. */
MF_TARGET static int MF_T(list_all)(mf_sac *u)
{
    int each = MF_T(list_tiles)(&u->critic[0], u->critic_x[0], u->ld_critic, 0);
    u->critic_tiles = each * u->members;
    u->actor_tiles = MF_T(list_tiles)(&u->actor, u->actor_x[0], u->ld_actor, 0);
    u->critic_tile = calloc(u->critic_tiles, sizeof(mf_tile));
    u->actor_tile = calloc(u->actor_tiles + 1, sizeof(mf_tile));
    if (!u->critic_tile || !u->actor_tile)
        return 0;
    for (int e = 0; e < u->members; e++)
        MF_T(list_tiles)(&u->critic[e], u->critic_x[0], u->ld_critic, u->critic_tile + e * each);
    MF_T(list_tiles)(&u->actor, u->actor_x[0], u->ld_actor, u->actor_tile);
    if (u->log_std.rows)
        u->actor_tile[u->actor_tiles++] = (mf_tile){.tensor = &u->log_std, .row = -1, .last_row = 1,
                                                    .by_column = u->spread_grad, .ld_column = u->ld_width};
    return 1;
}
