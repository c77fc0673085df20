/* physics.h: batches of robots on MuJoCo, for the CPU: one mjData per env, one mjModel for all.

     action row ─► ctrl ─► frame_skip × mj_step ─► the task's rules ─► reward, end, info, observation row

   Resets are next-step, as in shell.h. What the task keeps of the state before a step is taken at the end of the
   step before: nothing in between changes it, and so MuJoCo's integration state, mf_robot and the sums are all that
   is needed to go on bit for bit. */
#ifndef MF_ROBOT_PHYSICS_H
#define MF_ROBOT_PHYSICS_H

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <mujoco/mujoco.h>
#include "tasks/all.h"

_Static_assert(sizeof(mjtNum) == sizeof(mf_real), "MuJoCo's numbers are doubles");

/* One env's own state beside MuJoCo's; written to checkpoints as bytes. */
typedef struct {
    mf_task_state task;
    mf_real reward; /* of the last step, exact */
    int64_t episode;
    int32_t step, pending; /* pending: the episode has ended, the next call resets */
} mf_robot;

typedef struct {
    const mjModel *model;
    const mf_task *task;
    const void *params;
    mjData **data;       /* [num_envs] */
    mf_physics *physics; /* [num_envs]: views of data */
    mf_robot *robots;    /* [num_envs] */
    mf_real *obs_exact;  /* [num_envs, obs_size] */
    mf_real *info;       /* [num_envs, num_info] of the last step */
    mf_real *sums;       /* [num_envs, num_info] of the episode: sums, or last values */
    const int32_t *summed;  /* [num_info] 1: add up over the episode */
    const int32_t *stat_of; /* [num_stats - 1] index into info; the last statistic is `unstable` */
    uint64_t seed;
    uint32_t first_env;
    int32_t stagger_envs, max_steps, limit_is_terminal, frame_skip, obs_size, num_info, num_stats;
    const float *action; /* [num_envs, nu] */
    float *obs;          /* [num_envs, obs_size] */
    float *reward;
    uint8_t *terminal, *truncation, *mask, *reset;
    float *stats; /* [num_envs, num_stats] */
} mf_robots;

/* MuJoCo prints its warnings and writes them to a file of its own. Those of our steps are told by us (mf_quiet is set);
   all others go where they went, or to stderr. */
static _Thread_local int mf_quiet;
static void (*mf_warn_before)(const char *);
static void mf_warn(const char *message) {
    if (mf_quiet) return;
    if (mf_warn_before)
        mf_warn_before(message);
    else
        fprintf(stderr, "MuJoCo: %s\n", message);
}
static __attribute__((unused)) void mf_take_warnings(void) {
    if (mju_user_warning == mf_warn) return;
    mf_warn_before = mju_user_warning;
    mju_user_warning = mf_warn;
}

static __attribute__((unused)) void mf_robots_view(mf_robots *b, int32_t i, const mf_real *init_qvel) {
    const mjModel *m = b->model;
    const mjData *d = b->data[i];
    b->physics[i] = (mf_physics){
        .qpos = d->qpos, .qvel = d->qvel, .ctrl = d->ctrl, .qfrc_actuator = d->qfrc_actuator,
        .qfrc_constraint = d->qfrc_constraint, .cinert = d->cinert, .cvel = d->cvel, .cfrc_ext = d->cfrc_ext,
        .xpos = d->xpos, .xipos = d->xipos, .site_xpos = d->site_xpos, .ten_length = d->ten_length,
        .ten_velocity = d->ten_velocity, .body_mass = m->body_mass, .init_qpos = m->qpos0, .init_qvel = init_qvel,
        .timestep = m->opt.timestep, .dt = m->opt.timestep * b->frame_skip,
        .nq = (int32_t)m->nq, .nv = (int32_t)m->nv, .nu = (int32_t)m->nu, .nbody = (int32_t)m->nbody,
    };
}

/* The exact observation to the row. 0 if a number is not finite as float32: then the row keeps what it had, the last
   observation that was, and the exact one takes it. */
MF_FN int mf_robots_publish(const mf_robots *b, int32_t i, int good) {
    mf_real *exact = b->obs_exact + (int64_t)i * b->obs_size;
    float *row = b->obs + (int64_t)i * b->obs_size;
    for (int32_t k = 0; k < b->obs_size; k++) good &= isfinite((float)exact[k]) != 0;
    for (int32_t k = 0; k < b->obs_size; k++)
        if (good)
            row[k] = (float)exact[k];
        else
            exact[k] = row[k];
    return good;
}

/* Begin an episode from the qpos and qvel in the env's mjData. */
static void mf_robots_settle(const mf_robots *b, int32_t i, int32_t start_step) {
    mf_robot *r = &b->robots[i];
    mj_forward(b->model, b->data[i]);
    b->task->before(b->params, &b->physics[i], &r->task);
    b->task->observe(b->params, &b->physics[i], b->obs_exact + (int64_t)i * b->obs_size);
    for (int32_t k = 0; k < b->num_info; k++)
        b->info[(int64_t)i * b->num_info + k] = b->sums[(int64_t)i * b->num_info + k] = 0;
    r->reward = 0;
    r->step = start_step;
    r->pending = 0;
    b->reward[i] = 0;
    b->terminal[i] = b->truncation[i] = 0;
    b->mask[i] = b->reset[i] = 1;
    mf_robots_publish(b, i, 1);
}

static void mf_robots_begin(const mf_robots *b, int32_t i, int32_t start_step) {
    mjData *d = b->data[i];
    mf_rng rng;
    mf_rng_start(&rng, b->seed, b->first_env + (uint32_t)i, (uint32_t)b->robots[i].episode, 0);
    mj_resetData(b->model, d); /* warm start, ctrl, mocap and warnings too */
    b->task->reset(b->params, &b->physics[i], &rng, d->qpos, d->qvel);
    mf_robots_settle(b, i, start_step);
}

MF_FN int mf_robots_broken(const mjData *d) {
    return d->warning[mjWARN_BADQPOS].number || d->warning[mjWARN_BADQVEL].number ||
           d->warning[mjWARN_BADQACC].number || d->warning[mjWARN_BADCTRL].number;
}

static void mf_robots_say_unstable(const mf_robots *b, int32_t i) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        fprintf(stderr,
                "warning: the simulation of env %u (%s) became unstable at step %d of its episode; it starts anew. "
                "Later ones are counted in env/unstable.\n",
                b->first_env + (uint32_t)i, b->task->name, b->robots[i].step);
}

static void mf_robots_step_one(const mf_robots *b, int32_t i) {
    const mjModel *m = b->model;
    mjData *d = b->data[i];
    mf_robot *r = &b->robots[i];
    if (r->pending) {
        r->episode++;
        mf_robots_begin(b, i, 0);
        return;
    }
    const mf_physics *p = &b->physics[i];
    const float *action = b->action + (int64_t)i * p->nu;
    mf_real *info = b->info + (int64_t)i * b->num_info, *sums = b->sums + (int64_t)i * b->num_info;
    for (int32_t k = 0; k < p->nu; k++) d->ctrl[k] = action[k];
    for (int32_t k = 0; k < b->frame_skip; k++) mj_step(m, d);
    if (b->task->contact_forces) mj_rnePostConstraint(m, d);
    int terminal = b->task->after(b->params, p, &r->task, action, &r->reward, info);
    b->task->before(b->params, p, &r->task);
    b->task->observe(b->params, p, b->obs_exact + (int64_t)i * b->obs_size);
    r->step++;
    const int stable = mf_robots_publish(b, i, !mf_robots_broken(d) && isfinite((float)r->reward));
    if (stable) {
        for (int32_t k = 0; k < b->num_info; k++) sums[k] = b->summed[k] ? sums[k] + info[k] : info[k];
    } else {
        r->reward = 0;
        terminal = 1;
        mf_robots_say_unstable(b, i);
    }
    const int limit = stable && r->step >= b->max_steps;
    r->pending = terminal || limit;
    b->reward[i] = (float)r->reward;
    b->terminal[i] = terminal || (limit && b->limit_is_terminal);
    b->truncation[i] = limit && !b->limit_is_terminal;
    b->mask[i] = !r->pending;
    b->reset[i] = 0;
    if (r->pending) {
        float *stats = b->stats + (int64_t)i * b->num_stats;
        for (int32_t k = 0; k < b->num_stats - 1; k++) stats[k] = (float)sums[b->stat_of[k]];
        stats[b->num_stats - 1] = !stable;
    }
}

/* Start envs lo … hi-1 anew: their first episodes. */
static __attribute__((unused)) void mf_robots_reset_range(void *batch, int32_t lo, int32_t hi) {
    const mf_robots *b = (const mf_robots *)batch;
    mf_quiet = 1;
    for (int32_t i = lo; i < hi; i++) {
        const int64_t id = (int64_t)b->first_env + i;
        b->robots[i].episode = 0;
        mf_robots_begin(b, i, b->stagger_envs ? (int32_t)(id * b->max_steps / b->stagger_envs) : 0);
    }
    mf_quiet = 0;
}

/* Step envs lo … hi-1. Needs no lock: ranges that do not overlap may run in any threads. */
static __attribute__((unused)) void mf_robots_step_range(void *batch, int32_t lo, int32_t hi) {
    mf_quiet = 1;
    for (int32_t i = lo; i < hi; i++) mf_robots_step_one((const mf_robots *)batch, i);
    mf_quiet = 0;
}

#endif
