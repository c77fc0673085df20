/* all.h: every robot task as a row of one table. A new task: its header here, its name in MF_ROBOT_TASKS. */
#ifndef MF_ROBOT_ALL_H
#define MF_ROBOT_ALL_H

#include "ant.h"
#include "half_cheetah.h"
#include "hopper.h"
#include "humanoid.h"
#include "humanoid_standup.h"
#include "inverted_double_pendulum.h"
#include "inverted_pendulum.h"
#include "pusher.h"
#include "reacher.h"
#include "swimmer.h"
#include "walker2d.h"

/* X(name, 1 if it looks at cfrc_ext: contact forces cost time) */
#define MF_ROBOT_TASKS(X)                                                                                         \
    X(ant, 1) X(half_cheetah, 0) X(hopper, 0) X(humanoid, 1) X(humanoid_standup, 1) X(inverted_double_pendulum, 0) \
    X(inverted_pendulum, 0) X(pusher, 0) X(reacher, 0) X(swimmer, 0) X(walker2d, 0)

typedef struct {
    const char *name;
    int64_t params_size;
    int32_t contact_forces;
    void (*before)(const void *o, const mf_physics *p, mf_task_state *state);
    int32_t (*after)(const void *o, const mf_physics *p, mf_task_state *state, const float *action, mf_real *reward,
                     mf_real *info);
    void (*observe)(const void *o, const mf_physics *p, mf_real *obs);
    void (*reset)(const void *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel);
} mf_task;

#define MF_TASK_DOORS(NAME, FORCES)                                                                             \
    static void NAME##_before_door(const void *o, const mf_physics *p, mf_task_state *state) {                  \
        NAME##_before((const NAME##_params *)o, p, state);                                                      \
    }                                                                                                           \
    static int32_t NAME##_after_door(const void *o, const mf_physics *p, mf_task_state *state,                  \
                                     const float *action, mf_real *reward, mf_real *info) {                     \
        return NAME##_after((const NAME##_params *)o, p, state, action, reward, info);                          \
    }                                                                                                           \
    static void NAME##_observe_door(const void *o, const mf_physics *p, mf_real *obs) {                         \
        NAME##_observe((const NAME##_params *)o, p, obs);                                                       \
    }                                                                                                           \
    static void NAME##_reset_door(const void *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel) { \
        NAME##_reset((const NAME##_params *)o, p, rng, qpos, qvel);                                             \
    }
#define MF_TASK_ROW(NAME, FORCES)                                                                    \
    {#NAME, sizeof(NAME##_params), FORCES, NAME##_before_door, NAME##_after_door, NAME##_observe_door, \
     NAME##_reset_door},

MF_ROBOT_TASKS(MF_TASK_DOORS)
static const mf_task mf_tasks[] = {MF_ROBOT_TASKS(MF_TASK_ROW)};

/* The row of that name, or NULL. */
static const mf_task *mf_find_task(const char *name) {
    for (uint64_t i = 0; i < sizeof(mf_tasks) / sizeof(mf_tasks[0]); i++) {
        const char *a = mf_tasks[i].name, *b = name;
        while (*a && *a == *b) a++, b++;
        if (*a == *b) return &mf_tasks[i];
    }
    return 0;
}

#endif
