/* cpu.h: the same work as gpu.h on the CPU, for every task that is built in: rules in float over Warp's arrays. */
#ifndef MF_ROBOT_WARP_CPU_H
#define MF_ROBOT_WARP_CPU_H

#define MF_FLOAT
#include "../tasks/all.h"

#define MF_RULE_BEFORE(w, o, p, state) ((const mf_task *)(w)->task)->before(o, p, state)
#define MF_RULE_AFTER(w, o, p, state, action, reward, info) \
    ((const mf_task *)(w)->task)->after(o, p, state, action, reward, info)
#define MF_RULE_OBSERVE(w, o, p, obs) ((const mf_task *)(w)->task)->observe(o, p, obs)
#define MF_RULE_RESET(w, o, p, rng, qpos, qvel) ((const mf_task *)(w)->task)->reset(o, p, rng, qpos, qvel)
#define MF_WEIGH_SYNC() ((void)0)
#include "world.h"

typedef void mf_world_work(const void *params, const mf_world *w, const mf_world_rows *rows, int32_t i);

static void mf_world_weigh_one(const void *params, const mf_world *w, const mf_world_rows *rows, int32_t i) {
    (void)params;
    (void)rows;
    mf_world_weigh(w, i, w->fields.scratch, 0, 1);
}

/* Do the work of that name to all worlds; 0: there is none. */
static int32_t mf_world_all(const char *name, const void *params, const mf_world *w, const mf_world_rows *rows) {
    static const struct {
        const char *name;
        mf_world_work *work;
    } known[] = {{"first", mf_world_first}, {"act", mf_world_act}, {"step", mf_world_step}, {"begin", mf_world_begin},
                 {"weigh", mf_world_weigh_one}};
    for (int32_t k = 0; k < 5; k++) {
        if (strcmp(known[k].name, name)) continue;
        for (int32_t i = 0; i < w->num_envs; i++) known[k].work(params, w, rows, i);
        return 1;
    }
    return 0;
}

#endif
