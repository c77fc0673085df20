/* physics.h: batches of robots on MuJoCo, for the CPU: one mjData per env, one mjModel for all (own_model.h: for each,
   where masses, friction or strength are randomised).

     action row ─► ctrl ─► frame_skip × mj_step ─► the task's rules ─► reward, end, info, observation row

   Resets are next-step, as in shell.h. What the task keeps of the state before a step is taken at the end of the
   step before: nothing in between changes it, and so MuJoCo's integration state, mf_robot and the sums are all that
   is needed to go on bit for bit. */
#ifndef MF_ROBOT_PHYSICS_H
#define MF_ROBOT_PHYSICS_H

#include <math.h>
#include "faults.h"
#include "look.h"
#include "own_model.h"
#include "randomize.h"
#include "tasks/all.h"

_Static_assert(sizeof(mjtNum) == sizeof(mf_real), "MuJoCo's numbers are doubles");

/* One env's own state beside MuJoCo's; written to checkpoints as bytes. */
typedef struct {
    mf_task_state task;
    mf_real reward; /* of the last step, exact */
    int64_t episode;
    int32_t step, pending; /* pending: the episode has ended, the next call resets */
    int64_t warnings;      /* MuJoCo's, in this episode */
} mf_robot;

typedef struct {
    const mjModel *model;
    const mf_task *task;
    const void *params;
    mf_random random;    /* all 0: nothing is randomised */
    mjModel **own;       /* [num_envs] each env's own model; NULL: all have `model` */
    mf_looks looks;      /* of the rows that the process that draws reads; all NULL without pictures of their own */
    float *late;         /* [num_envs, random.latency[1], nu]: actions that have not taken effect yet */
    mjData **data;       /* [num_envs] */
    mf_physics *physics; /* [num_envs]: views of data */
    mf_robot *robots;    /* [num_envs] */
    mf_real *obs_exact;  /* [num_envs, obs_size] */
    mf_real *info;       /* [num_envs, num_info] of the last step */
    mf_real *sums;       /* [num_envs, num_info] of the episode: sums, or last values */
    const int32_t *summed;  /* [num_info] 1: add up over the episode */
    const int32_t *stat_of; /* [num_stats - 2] index into info; the last two are `warnings` and `unstable` */
    mf_event *events;       /* [MF_NUM_KINDS] */
    mf_event *fault;
    uint64_t seed;
    uint32_t first_env;
    int32_t stagger_envs, max_steps, limit_is_terminal, stop_unstable, frame_skip, obs_size, num_info, num_stats;
    /* In the order of ORDER in ../native/_batch.pyx. */
    const float *action; /* [num_envs, nu] */
    float *obs;          /* [num_envs, obs_size] */
    float *reward;
    uint8_t *terminal, *truncation, *mask, *reset;
    float *stats;      /* [num_envs, num_stats] */
    float *privileged; /* [num_envs, mf_robots_privileged_size]: for the critic alone; NULL: not wanted */
} mf_robots;

MF_FN const mjModel *mf_model_of(const mf_robots *b, int32_t i) { return b->own ? b->own[i] : b->model; }

MF_FN mf_episode mf_robots_episode(const mf_robots *b, int32_t i) {
    return mf_episode_of(b->seed, b->first_env + (uint32_t)i, (uint32_t)b->robots[i].episode);
}

MF_FN float *mf_robots_late(const mf_robots *b, int32_t i) {
    return b->late + (int64_t)i * b->random.latency[1] * b->model->nu;
}

static __attribute__((unused)) void mf_robots_view(mf_robots *b, int32_t i, const mf_real *init_qvel) {
    const mjModel *m = mf_model_of(b, i);
    const mjData *d = b->data[i];
    b->physics[i] = (mf_physics){
        .qpos = d->qpos, .qvel = d->qvel, .act = d->act, .ctrl = d->ctrl, .qfrc_actuator = d->qfrc_actuator,
        .qfrc_constraint = d->qfrc_constraint, .cinert = d->cinert, .cvel = d->cvel, .cfrc_ext = d->cfrc_ext,
        .xpos = d->xpos, .xipos = d->xipos, .site_xpos = d->site_xpos, .ten_length = d->ten_length,
        .ten_velocity = d->ten_velocity, .xquat = d->xquat, .sensordata = d->sensordata, .body_mass = m->body_mass, .init_qpos = m->qpos0, .init_qvel = init_qvel,
        .timestep = m->opt.timestep, .dt = m->opt.timestep * b->frame_skip,
        .nq = (int32_t)m->nq, .nv = (int32_t)m->nv, .nu = (int32_t)m->nu, .nbody = (int32_t)m->nbody,
    };
}

/* What the critic may see of any robot: qpos, qvel, the actuators' forces on the joints, contact forces on the bodies. */
static __attribute__((unused)) int64_t mf_robots_privileged_size(const mjModel *m) {
    return m->nq + 2 * m->nv + 6 * (m->nbody - 1);
}

/* That to row [mf_robots_privileged_size]; NULL: 1 if all of it is finite as float32, else 0. */
MF_FN int mf_robots_reveal(const mf_physics *p, float *row) {
    const mf_real *from[] = {p->qpos, p->qvel, p->qfrc_actuator, p->cfrc_ext + 6}; /* body 0 is the world */
    const int32_t count[] = {p->nq, p->nv, p->nv, 6 * (p->nbody - 1)};
    int good = 1;
    for (int32_t part = 0; part < 4; part++)
        for (int32_t k = 0; k < count[part]; k++)
            if (row)
                *row++ = (float)from[part][k];
            else
                good &= isfinite((float)from[part][k]) != 0;
    return good;
}

/* The exact observation to the row. 0 if a number is not finite as float32: then the row keeps what it had, the last
   observation that was, and the exact one takes it. */
MF_FN int mf_robots_publish(const mf_robots *b, int32_t i, int good) {
    mf_real *exact = b->obs_exact + (int64_t)i * b->obs_size;
    float *row = b->obs + (int64_t)i * b->obs_size;
    for (int32_t k = 0; k < b->obs_size; k++) good &= isfinite((float)exact[k]) != 0;
    if (b->privileged) {
        good &= mf_robots_reveal(&b->physics[i], 0);
        if (good) mf_robots_reveal(&b->physics[i], b->privileged + i * mf_robots_privileged_size(b->model));
    }
    for (int32_t k = 0; k < b->obs_size; k++)
        if (good)
            row[k] = (float)exact[k];
        else
            exact[k] = row[k];
    return good;
}

MF_FN void mf_robots_note(const mf_robots *b, int32_t i, int32_t kind, mjtSize info) {
    mf_event_keep(&b->events[kind], kind, i, b->robots[i].step, info, "");
}

/* Count MuJoCo's warnings of what did not fit or is nearly singular: the simulation goes on, less exact. */
MF_FN void mf_robots_count(const mf_robots *b, int32_t i) {
    static const int32_t kinds[] = {mjWARN_INERTIA, mjWARN_CONTACTFULL, mjWARN_CNSTRFULL};
    for (int32_t k = 0; k < 3; k++) {
        mjWarningStat *w = &b->data[i]->warning[kinds[k]];
        if (!w->number) continue;
        mf_robots_note(b, i, kinds[k], w->lastinfo);
        b->robots[i].warnings += w->number;
        w->number = 0;
    }
}

/* Why the last step's numbers cannot be used, as the kind of an event; -1: they can. */
MF_FN int32_t mf_robots_broken(const mjData *d) {
    static const int32_t kinds[] = {mjWARN_BADQPOS, mjWARN_BADQVEL, mjWARN_BADQACC, mjWARN_BADCTRL};
    for (int32_t k = 0; k < 4; k++)
        if (d->warning[kinds[k]].number) return kinds[k];
    return -1;
}

/* Observe, with noise if the policy is to see such. */
MF_FN void mf_robots_observe(const mf_robots *b, int32_t i) {
    mf_real *obs = b->obs_exact + (int64_t)i * b->obs_size;
    b->task->observe(b->params, &b->physics[i], obs);
    if (b->random.noise > 0) {
        const mf_episode e = mf_robots_episode(b, i);
        mf_random_noise(&b->random, &e, b->robots[i].step, obs, b->obs_size);
    }
}

/* Give the env's own model and its look the numbers of its episode; its mjData is scratch. */
static void mf_robots_draw(const mf_robots *b, int32_t i) {
    const mf_episode e = mf_robots_episode(b, i);
    if (b->random.looks) mf_look_draw(&b->looks, &b->random, &e, i, 0, 1);
    if (b->own) mf_own_model_draw(b->own[i], b->model, &b->random, &e, b->data[i]);
}

/* Begin an episode from the qpos and qvel in the env's mjData. */
static void mf_robots_settle(const mf_robots *b, int32_t i, int32_t start_step) {
    mf_robot *r = &b->robots[i];
    r->warnings = 0;
    r->step = start_step;
    mj_forward(mf_model_of(b, i), b->data[i]);
    mf_robots_count(b, i);
    b->task->before(b->params, &b->physics[i], &r->task);
    mf_robots_observe(b, i);
    if (b->late) memset(mf_robots_late(b, i), 0, sizeof(float) * (size_t)(b->random.latency[1] * b->model->nu));
    for (int32_t k = 0; k < b->num_info; k++)
        b->info[(int64_t)i * b->num_info + k] = b->sums[(int64_t)i * b->num_info + k] = 0;
    r->reward = 0;
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
    b->physics[i].evaluation = (int32_t)(b->seed >> 63);
    mf_robots_draw(b, i);
    mj_resetData(mf_model_of(b, i), d); /* warm start, ctrl, mocap and warnings too */
    b->task->reset(b->params, &b->physics[i], &rng, d->qpos, d->qvel);
    mf_robots_settle(b, i, start_step);
}

static void mf_robots_step_one(const mf_robots *b, int32_t i) {
    const mjModel *m = mf_model_of(b, i);
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
    if (b->late) {
        const mf_episode e = mf_robots_episode(b, i);
        const int32_t delay = mf_random_latency(&b->random, &e);
        float *late = mf_robots_late(b, i);
        for (int32_t k = 0; k < p->nu; k++)
            d->ctrl[k] = mf_random_late(&b->random, late, delay, r->step, p->nu, k, action[k]);
    } else {
        for (int32_t k = 0; k < p->nu; k++) d->ctrl[k] = action[k];
    }
    if (b->random.push > 0) {
        const mf_episode e = mf_robots_episode(b, i);
        mf_random_push(&b->random, &e, r->step, d->qvel);
    }
    for (int32_t k = 0; k < b->frame_skip; k++) mj_step(m, d);
    if (b->task->contact_forces || b->privileged) mj_rnePostConstraint(m, d);
    int terminal = b->task->after(b->params, p, &r->task, action, &r->reward, info);
    b->task->before(b->params, p, &r->task);
    r->step++;
    mf_robots_observe(b, i);
    mf_robots_count(b, i);
    int32_t why = mf_robots_broken(d);
    const int stable = mf_robots_publish(b, i, why < 0 && isfinite((float)r->reward));
    if (stable) {
        for (int32_t k = 0; k < b->num_info; k++) sums[k] = b->summed[k] ? sums[k] + info[k] : info[k];
    } else {
        r->reward = 0;
        terminal = 1;
        const mjtSize at = why < 0 ? 0 : d->warning[why].lastinfo;
        if (why < 0) why = MF_NOT_FINITE;
        mf_robots_note(b, i, why, at);
        if (b->stop_unstable) mf_event_keep(b->fault, why, i, r->step, at, "");
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
        for (int32_t k = 0; k < b->num_stats - 2; k++) stats[k] = (float)sums[b->stat_of[k]];
        stats[b->num_stats - 2] = (float)r->warnings;
        stats[b->num_stats - 1] = !stable;
    }
}

static void mf_robots_first(const mf_robots *b, int32_t i) {
    const int64_t id = (int64_t)b->first_env + i;
    b->robots[i].episode = 0;
    mf_robots_begin(b, i, b->stagger_envs ? (int32_t)(id * b->max_steps / b->stagger_envs) : 0);
}

static void mf_robots_settle_fresh(const mf_robots *b, int32_t i) { mf_robots_settle(b, i, 0); }

/* Do `one` to envs lo … hi-1; not 0 if the batch has a fault. */
static int32_t mf_robots_each(const mf_robots *b, int32_t lo, int32_t hi, void (*one)(const mf_robots *, int32_t)) {
    mf_guard guard;
    volatile int32_t i = lo;
    mf_guard_enter(&guard);
    if (!setjmp(guard.out))
        for (; i < hi; i++) one(b, i);
    else
        mf_event_keep(b->fault, MF_FATAL, i, b->robots[i].step, 0, guard.error);
    mf_guard_leave(&guard);
    return atomic_load(&b->fault->state) != MF_FREE;
}

/* Start envs lo … hi-1 anew: their first episodes. */
static __attribute__((unused)) int32_t mf_robots_reset_range(void *batch, int32_t lo, int32_t hi) {
    return mf_robots_each((const mf_robots *)batch, lo, hi, mf_robots_first);
}

/* Give envs lo … hi-1 the models of their episodes; their mjData have to be reset afterwards. */
static __attribute__((unused)) int32_t mf_robots_draw_range(void *batch, int32_t lo, int32_t hi) {
    return mf_robots_each((const mf_robots *)batch, lo, hi, mf_robots_draw);
}

/* Begin an episode of env i from the qpos and qvel in its mjData. */
static __attribute__((unused)) int32_t mf_robots_restart(void *batch, int32_t i) {
    return mf_robots_each((const mf_robots *)batch, i, i + 1, mf_robots_settle_fresh);
}

/* Step envs lo … hi-1. Needs no lock: ranges that do not overlap may run in any threads. */
static __attribute__((unused)) int32_t mf_robots_step_range(void *batch, int32_t lo, int32_t hi) {
    return mf_robots_each((const mf_robots *)batch, lo, hi, mf_robots_step_one);
}

#endif
