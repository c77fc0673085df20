/* shell.h: defines batches of environments on the CPU for any rules header of contract.h.

     #include "grid_rules.h"
     #define MF_ENV grid
     #include "shell.h"          defines grid_batch, grid_reset_range, grid_step_range

   A batch is num_envs states in one array and pointers into the caller's rows, [num_envs * agents, …] each.
   Resets happen in the next step (Gymnasium's default): the step that ends an episode writes its true last observation
   with mask 0; the next call ignores the actions and writes the first row of the next episode. */
#include "rows.h"

typedef struct {
    const MF_NAME(params) * params;
    uint8_t *states; /* [num_envs, state_size], 64-byte aligned */
    uint64_t seed;
    uint32_t first_env;   /* global id of the batch's first env */
    int32_t stagger_envs; /* reset: total number of envs over which first episodes are staggered, or 0 */
    int32_t max_steps;    /* used by the stagger */
    MF_NAME(rows) rows;
} MF_NAME(batch);

MF_FN uint8_t *MF_NAME(batch_state)(const MF_NAME(batch) * b, int32_t i) {
    return b->states + (int64_t)i * MF_NAME(state_size)(b->params);
}

/* Resets one env, without its observations. */
MF_FN void MF_NAME(reset_one)(const MF_NAME(batch) * b, int32_t i, int32_t start_step) {
    MF_NAME(reset)(b->params, MF_NAME(batch_state)(b, i), b->seed, b->first_env + (uint32_t)i, start_step, 0,
                   1);
    MF_NAME(new_rows)(b->params, &b->rows, i, 0, 1);
}

/* Steps one env, without its observations. */
MF_FN void MF_NAME(step_one)(const MF_NAME(batch) * b, int32_t i) {
    uint8_t *state = MF_NAME(batch_state)(b, i);
    if (MF_NAME(pending)(b->params, state))
        MF_NAME(reset_one)(b, i, 0);
    else
        MF_NAME(advance_rows)(b->params, state, b->seed, b->first_env + (uint32_t)i, &b->rows, i);
}

MF_FN void MF_NAME(observe_one)(const MF_NAME(batch) * b, int32_t i) {
    const int32_t agents = MF_NAME(num_agents)(b->params), size = MF_NAME(obs_size)(b->params);
    uint8_t *out = b->rows.obs + (int64_t)i * agents * size;
    for (int32_t k = 0; k < agents; k++)
        MF_NAME(observe)(b->params, MF_NAME(batch_state)(b, i), k, out + (int64_t)k * size, 0, 1);
}

/* Starts envs lo … hi-1 from zeroed states. */
static __attribute__((unused)) int32_t MF_NAME(reset_range)(void *batch, int32_t lo, int32_t hi) {
    const MF_NAME(batch) *b = (const MF_NAME(batch) *)batch;
    for (int32_t i = lo; i < hi; i++) {
        const int64_t id = (int64_t)b->first_env + i;
        MF_FILL(MF_NAME(batch_state)(b, i), 0, (uint64_t)MF_NAME(state_size)(b->params));
        MF_NAME(reset_one)(b, i, b->stagger_envs ? (int32_t)(id * b->max_steps / b->stagger_envs) : 0);
        MF_NAME(observe_one)(b, i);
    }
    return 0;
}

/* Steps envs lo … hi-1. Needs no lock: ranges that do not overlap may run on any threads. */
static __attribute__((unused)) int32_t MF_NAME(step_range)(void *batch, int32_t lo, int32_t hi) {
    const MF_NAME(batch) *b = (const MF_NAME(batch) *)batch;
    for (int32_t i = lo; i < hi; i++) {
        MF_NAME(step_one)(b, i);
        MF_NAME(observe_one)(b, i);
    }
    return 0;
}
