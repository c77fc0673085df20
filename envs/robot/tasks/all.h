/* all.h: every robot task as a row of one table. A new task: its two files in this folder; the build finds them. */
#ifndef MF_ROBOT_ALL_H
#define MF_ROBOT_ALL_H

#include <string.h>

/* Written by setup.py: an #include for every header here that defines NAME_params, and MF_ROBOT_TASKS(X), an
   X(NAME, SOURCE) for each; SOURCE: checksum of the header. */
#include "list.h"

typedef struct {
    const char *name;
    int64_t params_size;
    uint32_t source;        /* checksum (CRC-32) of the header that was built */
    int32_t contact_forces; /* 1: it looks at cfrc_ext */
    void (*before)(const void *o, const mf_physics *p, mf_task_state *state);
    int32_t (*after)(const void *o, const mf_physics *p, mf_task_state *state, const float *action, mf_real *reward,
                     mf_real *info);
    void (*observe)(const void *o, const mf_physics *p, mf_real *obs);
    void (*reset)(const void *o, const mf_physics *p, mf_rng *rng, mf_real *qpos, mf_real *qvel);
} mf_task;

#define MF_TASK_DOORS(NAME, SOURCE)                                                                             \
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
#define MF_TASK_ROW(NAME, SOURCE)                                                                    \
    {#NAME, sizeof(NAME##_params), SOURCE, NAME##_contact_forces, NAME##_before_door,                 \
     NAME##_after_door, NAME##_observe_door, NAME##_reset_door},

MF_ROBOT_TASKS(MF_TASK_DOORS)
static const mf_task mf_tasks[] = {MF_ROBOT_TASKS(MF_TASK_ROW)};

enum { MF_NUM_TASKS = sizeof(mf_tasks) / sizeof(mf_tasks[0]) };

/* The row of that name, or NULL. */
static const mf_task *mf_find_task(const char *name) {
    for (int32_t i = 0; i < MF_NUM_TASKS; i++)
        if (!strcmp(mf_tasks[i].name, name)) return &mf_tasks[i];
    return NULL;
}

#endif
