/* rows.h: the rows that an environment's steps read and write, on the CPU (shell.h) and on the GPU (gpu_shell.h).

   MF_ENV is the environment's name, as there. Each of the two writes observations itself. */
#include "contract.h"

/* Rows of all agents, from agent 0 of env 0. */
typedef struct {
    const MF_NAME(action) * action; /* [agents, action_width] */
    uint8_t *obs;                   /* [agents, obs_size] */
    float *reward;
    uint8_t *terminal, *truncation, *mask, *reset;
    float *stats; /* [agents, stats] */
} MF_NAME(rows);

/* Writes the rows of a new episode of env i, without observations. */
MF_FN void MF_NAME(new_rows)(const MF_NAME(params) * p, const MF_NAME(rows) * r, int32_t i, int32_t lane,
                             int32_t lanes) {
    const int32_t agents = MF_NAME(num_agents)(p);
    const int64_t row = (int64_t)i * agents;
    for (int32_t k = lane; k < agents; k += lanes) {
        r->reward[row + k] = 0.0f;
        r->terminal[row + k] = r->truncation[row + k] = 0;
        r->mask[row + k] = r->reset[row + k] = 1;
    }
}

/* Steps env i, whose episode continues, with one lane, without observations; `env`: its global id. */
MF_FN void MF_NAME(advance_rows)(const MF_NAME(params) * p, uint8_t *state, uint64_t seed, uint32_t env,
                                 const MF_NAME(rows) * r, int32_t i) {
    const int32_t agents = MF_NAME(num_agents)(p);
    const int64_t row = (int64_t)i * agents;
    const MF_NAME(action) *action = r->action + row * MF_NAME(action_width);
    MF_NAME(begin)(p, state, seed, env);
    for (int32_t priority = MF_NAME(priorities) - 1; priority >= 0; priority--)
        for (int32_t turn = 0; turn < agents; turn++)
            MF_NAME(act)(p, state, priority, turn, action);
    MF_NAME(finish)(p, state, r->reward + row, r->terminal + row, r->truncation + row, r->mask + row,
                    r->stats + row * MF_NAME(stats));
    for (int64_t k = row; k < row + agents; k++)
        r->reset[k] = 0;
}
