/* The memory of an update of PPO in C (mlp_update.h): networks, tensors with Adam's moments, slots, and its parts. */
#ifndef MF_MLP_UPDATE_STATE_H
#define MF_MLP_UPDATE_STATE_H

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

#endif
