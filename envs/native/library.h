/* library.h: exports a rules header from a shared library of its own, which _library.pyx steps.

     #include "snake.h"
     #define MF_ENV snake
     #include "library.h"
     MF_EXPORT const mf_field mf_fields[] = {MF_FIELD(num_agents), …, MF_END};

   metta_fast/envs/c_env/library.py writes such a file and compiles it. Of contract.h's functions only ENV_renew is not
   needed. In addition the header defines

     void ENV_prepare(ENV_params *)      computes members from those that Python has written; all others are 0 before

   and ENV_params has the members int32_t num_agents, max_steps, limit_is_terminal, and one (int32_t or float) for each
   parameter of the CEnv. */
#include <stddef.h>

#include "shell.h"

#define MF_EXPORT __attribute__((visibility("default")))

typedef struct {
    const char *name;
    int64_t at;   /* offset in ENV_params */
    int32_t kind; /* 0: int32_t, 1: float, 2: another type */
    int32_t pad;
} mf_field;

#define MF_KIND(x) _Generic((x), int32_t: 0, float: 1, default: 2)
#define MF_FIELD(field)                                                                                      \
    {                                                                                                        \
        #field, offsetof(MF_NAME(params), field), MF_KIND(((MF_NAME(params) *)0)->field), 0                  \
    }
#define MF_END                                                                                               \
    { 0, 0, 0, 0 }

MF_EXPORT int64_t mf_params_size(void) { return sizeof(MF_NAME(params)); }
MF_EXPORT int64_t mf_batch_size(void) { return sizeof(MF_NAME(batch)); }
MF_EXPORT void mf_prepare(void *params) { MF_NAME(prepare)((MF_NAME(params) *)params); }

/* Writes the state's and an observation's bytes, agents, numbers of an action and of statistics, and the kind of an
   action's numbers (as in mf_field). */
MF_EXPORT void mf_sizes(const void *params, int64_t out[6]) {
    const MF_NAME(params) *p = (const MF_NAME(params) *)params;
    out[0] = MF_NAME(state_size)(p), out[1] = MF_NAME(obs_size)(p), out[2] = MF_NAME(num_agents)(p);
    out[3] = MF_NAME(action_width), out[4] = MF_NAME(stats), out[5] = MF_KIND((MF_NAME(action))0);
}

/* Fills a zeroed batch; `places` gets the addresses of its seed, stagger_envs and rows. */
MF_EXPORT void mf_begin(void *batch, const void *params, uint8_t *states, uint32_t first_env, int32_t max_steps,
                        void *places[3]) {
    MF_NAME(batch) *b = (MF_NAME(batch) *)batch;
    b->params = (const MF_NAME(params) *)params;
    b->states = states, b->first_env = first_env, b->max_steps = max_steps;
    places[0] = &b->seed, places[1] = &b->stagger_envs, places[2] = &b->rows;
}

MF_EXPORT int32_t mf_reset(void *batch, int32_t lo, int32_t hi) { return MF_NAME(reset_range)(batch, lo, hi); }
MF_EXPORT int32_t mf_step(void *batch, int32_t lo, int32_t hi) { return MF_NAME(step_range)(batch, lo, hi); }
