/* gpu_shell.h: defines the kernels for any rules header of contract.h.

     #include "grid_rules.h"
     #define MF_ENV grid
     #include "gpu_shell.h"

     mf_reset          starts every env from zero and writes its rows    a block per env
     mf_build          makes the next episode of each env without one    a warp for MF_BUILD_ENVS envs
     mf_step           steps and writes rows: a warp steps (lane 0, or   a block per env
                       all lanes with MF_ADVANCE), then every warp of
                       the block observes
     mf_step_threads   steps only                                        a thread per env
     mf_observe        observes only                                     a warp per agent

   A reset, one call in shell.h, has two stages here. mf_build makes the next episode of an env long before the present
   one ends, in separate memory; the step after the end copies it. So mf_build need not run for every row, only once
   between two ends of an env. Compile with -DMF_PARAMS_BYTES=…, the host's size of ENV_params;
   metta_fast/vector/gpu.py launches the kernels.

   For rules without ENV_renew, compile with -DMF_IN_PLACE: the step after an end calls ENV_reset, and there is no
   mf_build. With -DMF_ONE_LANE, one lane does the whole of ENV_reset and of an agent's ENV_observe (lane 0 of 1), so
   that the rules need not share work; the lanes of a warp observe for different agents. */
#include "rows.h"

#ifndef MF_WARM
#define MF_WARM(at) mf_warm_sector(at)
MF_FN void mf_warm_sector(const uint8_t *at) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}
#endif

enum { MF_WARP = 32, MF_BUILD_ENVS = 8 };

/* Has the same fields as `World` in metta_fast/vector/gpu.py. */
typedef struct {
    uint8_t *states;      /* [total_envs, state_size] */
    uint8_t *next;        /* [total_envs, state_size]: the next episode of each env; not with MF_IN_PLACE */
    uint8_t *ready;       /* [total_envs]: 1 if `next` contains it */
    const uint64_t *seed; /* [1] */
    uint32_t first_env;   /* global id of env 0 */
    int32_t start, stop;  /* envs of this launch */
    int32_t total_envs, max_steps;
    int32_t warm;    /* bytes at the start of a state that a step prefetches */
    int32_t scratch; /* 1: mf_build has shared memory for one state */
} mf_world;

/* Has the same fields as `RowPointers` in metta_fast/vector/gpu_rows.py. */
typedef MF_NAME(rows) mf_rows;

static_assert(sizeof(MF_NAME(params)) == MF_PARAMS_BYTES, "host and device disagree on the size of the parameters");

#define MF_KERNEL extern "C" __global__ void
#define MF_GIVEN const __grid_constant__

MF_FN uint8_t *mf_state(const MF_NAME(params) * p, const mf_world *w, int32_t env) {
    return w->states + (int64_t)env * MF_NAME(state_size)(p);
}

/* Makes an episode of env in `state`; called by all lanes of a warp. */
MF_FN void mf_begin_episode(const MF_NAME(params) * p, const mf_world *w, uint8_t *state, int32_t env, int32_t start_step,
                            int32_t lane) {
#ifdef MF_ONE_LANE
    if (lane == 0)
        MF_NAME(reset)(p, state, *w->seed, w->first_env + (uint32_t)env, start_step, 0, 1);
#else
    MF_NAME(reset)(p, state, *w->seed, w->first_env + (uint32_t)env, start_step, lane, MF_WARP);
#endif
}

/* Starts the next episode of an ended env and writes its rows, without observations; called by all lanes of a warp. */
MF_FN void mf_renew(const MF_NAME(params) * p, const mf_world *w, const mf_rows *r, int32_t env, int32_t lane) {
#ifdef MF_IN_PLACE
    mf_begin_episode(p, w, mf_state(p, w, env), env, 0, lane);
    MF_NAME(new_rows)(p, r, env, lane, MF_WARP);
#else
    if (!w->ready[env])
        __trap(); /* mf_build was not launched */
    MF_NAME(renew)(p, mf_state(p, w, env), w->next + (int64_t)env * MF_NAME(state_size)(p), lane, MF_WARP);
    MF_NAME(new_rows)(p, r, env, lane, MF_WARP);
    __syncwarp(); /* until all lanes have read the flag */
    if (lane == 0)
        w->ready[env] = 0;
#endif
}

/* Steps an env whose episode continues, with one lane, without observations. */
MF_FN void mf_advance(const MF_NAME(params) * p, const mf_world *w, const mf_rows *r, int32_t env) {
    MF_NAME(advance_rows)(p, mf_state(p, w, env), *w->seed, w->first_env + (uint32_t)env, r, env);
}

/* Does the same with all lanes of a warp. */
MF_FN void mf_advance_lanes(const MF_NAME(params) * p, const mf_world *w, const mf_rows *r, int32_t env, int32_t lane) {
#ifdef MF_ADVANCE
    const int32_t agents = MF_NAME(num_agents)(p);
    const int64_t row = (int64_t)env * agents;
    for (int32_t k = lane; k < agents; k += MF_WARP)
        r->reset[row + k] = 0;
    MF_NAME(advance)(p, mf_state(p, w, env), *w->seed, w->first_env + (uint32_t)env,
                     r->action + row * MF_NAME(action_width), r->reward + row, r->terminal + row, r->truncation + row,
                     r->mask + row, r->stats + row * MF_NAME(stats), lane, MF_WARP);
#else
    if (lane == 0)
        mf_advance(p, w, r, env);
#endif
}

/* Writes the observations of an env with the warps of a block. */
MF_FN void mf_observe_env(const MF_NAME(params) * p, const mf_world *w, const mf_rows *r, int32_t env) {
    const int32_t agents = MF_NAME(num_agents)(p), size = MF_NAME(obs_size)(p);
#ifdef MF_ONE_LANE
    for (int32_t k = (int32_t)(threadIdx.y * MF_WARP + threadIdx.x); k < agents; k += (int32_t)(blockDim.y * MF_WARP))
        MF_NAME(observe)(p, mf_state(p, w, env), k, r->obs + ((int64_t)env * agents + k) * size, 0, 1);
#else
    for (int32_t k = (int32_t)threadIdx.y; k < agents; k += (int32_t)blockDim.y)
        MF_NAME(observe)(p, mf_state(p, w, env), k, r->obs + ((int64_t)env * agents + k) * size, (int32_t)threadIdx.x,
                         MF_WARP);
#endif
}

MF_KERNEL mf_reset(MF_GIVEN MF_NAME(params) p, MF_GIVEN mf_world w, MF_GIVEN mf_rows r, int32_t stagger) {
    const int32_t env = w.start + (int32_t)blockIdx.x, lane = (int32_t)threadIdx.x;
    const int64_t id = (int64_t)w.first_env + env;
    if (threadIdx.y == 0) {
        uint8_t *state = mf_state(&p, &w, env);
        mf_zero(state, 0, MF_NAME(state_size)(&p), lane, MF_WARP);
        __syncwarp();
        mf_begin_episode(&p, &w, state, env, stagger ? (int32_t)(id * w.max_steps / w.total_envs) : 0, lane);
        MF_NAME(new_rows)(&p, &r, env, lane, MF_WARP);
#ifndef MF_IN_PLACE
        if (lane == 0)
            w.ready[env] = 0; /* it was made with another seed */
#endif
    }
    __syncthreads();
    mf_observe_env(&p, &w, &r, env);
}

#ifndef MF_IN_PLACE
/* Builds in shared memory, whose latency is a tenth, since building is a long chain of small reads and writes.
   Staggered neighbours end at about the same time, so a warp's envs are far apart. */
MF_KERNEL mf_build(MF_GIVEN MF_NAME(params) p, MF_GIVEN mf_world w) {
    MF_SCRATCH;
    const int32_t lane = (int32_t)threadIdx.x, apart = (w.stop - w.start + MF_BUILD_ENVS - 1) / MF_BUILD_ENVS;
    const int32_t first = w.start + (int32_t)blockIdx.x, mine = first + lane * apart;
    const int64_t bytes = MF_NAME(state_size)(&p);
    const int32_t missing = lane < MF_BUILD_ENVS && mine < w.stop && !w.ready[mine];
    for (uint32_t set = __ballot_sync(0xffffffffu, missing); set; set &= set - 1) {
        const int32_t env = first + MF_CTZ(set) * apart;
        uint8_t *next = w.next + env * bytes, *at = w.scratch ? mf_scratch : next;
        mf_copy(at, mf_state(&p, &w, env), bytes, lane, MF_WARP);
        __syncwarp();
        mf_begin_episode(&p, &w, at, env, 0, lane);
        if (w.scratch)
            mf_copy(next, at, bytes, lane, MF_WARP);
        __syncwarp();
        if (lane == 0)
            w.ready[env] = 1;
    }
}
#endif

MF_KERNEL mf_step(MF_GIVEN MF_NAME(params) p, MF_GIVEN mf_world w, MF_GIVEN mf_rows r) {
    const int32_t env = w.start + (int32_t)blockIdx.x, lane = (int32_t)threadIdx.x;
    if (threadIdx.y == 0) {
        uint8_t *state = mf_state(&p, &w, env);
        const int32_t width = MF_NAME(num_agents)(&p) * MF_NAME(action_width), ended = MF_NAME(pending)(&p, state);
        for (int32_t i = 32 * lane; i < w.warm; i += 32 * MF_WARP) /* one cache sector each */
            MF_WARM(state + i);
        for (int32_t i = 8 * lane; i < width; i += 8 * MF_WARP)
            MF_WARM((const uint8_t *)(r.action + (int64_t)env * width + i));
        __syncwarp();
        if (ended)
            mf_renew(&p, &w, &r, env, lane);
        else
            mf_advance_lanes(&p, &w, &r, env, lane);
    }
    __syncthreads();
    mf_observe_env(&p, &w, &r, env);
}

MF_KERNEL mf_step_threads(MF_GIVEN MF_NAME(params) p, MF_GIVEN mf_world w, MF_GIVEN mf_rows r) {
    const int32_t lane = (int32_t)threadIdx.x, first = w.start + (int32_t)(blockIdx.x * blockDim.x), env = first + lane;
    const int32_t ended = env < w.stop && MF_NAME(pending)(&p, mf_state(&p, &w, env));
    const uint32_t set = __ballot_sync(0xffffffffu, ended);
    if (env < w.stop && !ended)
        mf_advance(&p, &w, &r, env);
    for (uint32_t left = set; left; left &= left - 1)
        mf_renew(&p, &w, &r, first + MF_CTZ(left), lane);
}

MF_KERNEL mf_observe(MF_GIVEN MF_NAME(params) p, MF_GIVEN mf_world w, MF_GIVEN mf_rows r) {
    const int32_t agents = MF_NAME(num_agents)(&p), size = MF_NAME(obs_size)(&p), lane = (int32_t)threadIdx.x;
    const int32_t agent = w.start * agents + (int32_t)(blockIdx.x * blockDim.y + threadIdx.y);
    if (agent >= w.stop * agents)
        return;
#ifdef MF_ONE_LANE
    if (lane == 0)
        MF_NAME(observe)(&p, mf_state(&p, &w, agent / agents), agent % agents, r.obs + (int64_t)agent * size, 0, 1);
#else
    MF_NAME(observe)(&p, mf_state(&p, &w, agent / agents), agent % agents, r.obs + (int64_t)agent * size, lane, MF_WARP);
#endif
}
