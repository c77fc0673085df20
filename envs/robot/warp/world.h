/* world.h: a robot task's rules over MuJoCo Warp's arrays, one world at a time; the same code on GPU and CPU.

     action row ─► mf_world_act ─► physics: frame_skip × step ─► mf_world_step ─► mf_world_weigh ─► (physics: forward)
                ─► mf_world_begin

   mf_world_step writes the row of a world whose episode goes on or ends; one whose episode had ended gets its next
   start there, and where models are randomised mf_world_weigh gives it its own numbers of the model (weigh.h). Nothing
   derived of a new start is known before the physics' forward, so mf_world_begin writes its row.
   The includer defines how rules are called: MF_RULE_BEFORE(w, o, p, state), MF_RULE_AFTER(w, o, p, state, action,
   reward, info), MF_RULE_OBSERVE(w, o, p, obs), MF_RULE_RESET(w, o, p, rng, qpos, qvel). */
#ifndef MF_ROBOT_WORLD_H
#define MF_ROBOT_WORLD_H

#include "../randomize.h"
#include "weigh.h"

enum { MF_MOST_INFO = 32 };
#define MF_MOST_VALUE 1e10f /* MuJoCo's mjMAXVAL: a greater state is unstable */

/* Has the same fields as `World` in engine.py. Arrays begin with the world, [num_envs, …]. */
typedef struct {
    float *qpos, *qvel, *ctrl, *act, *act_dot, *qacc, *qacc_warmstart, *time;
    float *qfrc_actuator, *qfrc_constraint, *cinert, *cvel, *cfrc_ext, *xpos, *xipos, *site_xpos, *ten_length, *ten_velocity;
    float *xquat, *sensordata;
    int32_t *overflow;                             /* [num_envs]: what did not fit; read and cleared here */
    const float *body_mass;                         /* [nbody] of the model; of each world if random.masses */
    const float *init_qpos, *init_qvel;             /* of the model, for all worlds */
    uint8_t *robots;                               /* [num_envs, sizeof(mf_robot)] */
    float *sums;                                   /* [num_envs, num_info]: sums over the episode, or last values */
    const int32_t *summed;                         /* [num_info] 1: add up */
    const int32_t *stat_of;                        /* [num_stats - 2] index into info */
    const uint64_t *seed;                          /* [1] */
    float *late;                                   /* [num_envs, random.latency[1], nu]: actions to come; or NULL */
    const void *task;                              /* for the includer's macros */
    float timestep, dt;
    int32_t nq, nv, nu, na, nbody, nsite, ntendon, nsensordata;
    uint32_t first_env;
    int32_t num_envs, total_envs, stagger, max_steps, limit_is_terminal, obs_size, num_info, num_stats, lost;
    int32_t privileged_size; /* numbers that only the critic sees; 0: none are wanted */
    int32_t redraw; /* 1: mf_world_weigh does all worlds, not only those that begin an episode */
    mf_random random;
    mf_fields fields;
} mf_world;

/* Has the same fields as `Rows` in engine.py: a row of the buffers, of all worlds. */
typedef struct {
    const float *action;   /* [num_envs, nu] */
    const float *last_obs; /* [num_envs, obs_size]: the row before */
    float *obs, *reward;
    uint8_t *terminal, *truncation, *mask, *reset;
    float *stats; /* [num_envs, num_stats] */
    const float *last_privileged; /* [num_envs, privileged_size]; NULL if that is 0 */
    float *privileged;
} mf_world_rows;

/* One world's own state beside the physics'; written to checkpoints as bytes. */
typedef struct {
    mf_task_state task;
    int32_t episode, step;
    int32_t pending;  /* the episode has ended: the next call begins one */
    int32_t fresh;    /* it has begun, its first row is not written */
    int32_t warnings; /* steps of this episode in which something did not fit */
    int32_t overflow; /* bits of all that did not fit, since the host cleared them */
    int32_t unstable; /* episodes that ended so, since the host cleared it */
    int32_t unused;
} mf_robot;

MF_FN mf_robot *mf_robot_of(const mf_world *w, int32_t i) { return (mf_robot *)w->robots + i; }

MF_FN mf_physics mf_world_view(const mf_world *w, int32_t i) {
    const int64_t k = i;
    mf_physics p;
    p.qpos = w->qpos + k * w->nq, p.qvel = w->qvel + k * w->nv, p.ctrl = w->ctrl + k * w->nu;
    p.act = w->act + k * w->na, p.xquat = w->xquat + k * 4 * w->nbody;
    p.sensordata = w->sensordata + k * w->nsensordata;
    p.qfrc_actuator = w->qfrc_actuator + k * w->nv, p.qfrc_constraint = w->qfrc_constraint + k * w->nv;
    p.cinert = w->cinert + k * 10 * w->nbody;
    p.cvel = w->cvel + k * 6 * w->nbody, p.cfrc_ext = w->cfrc_ext + k * 6 * w->nbody;
    p.xpos = w->xpos + k * 3 * w->nbody, p.xipos = w->xipos + k * 3 * w->nbody;
    p.site_xpos = w->site_xpos + k * 3 * w->nsite;
    p.ten_length = w->ten_length + k * w->ntendon, p.ten_velocity = w->ten_velocity + k * w->ntendon;
    p.body_mass = w->body_mass + (w->random.masses ? k * w->nbody : 0);
    p.init_qpos = w->init_qpos, p.init_qvel = w->init_qvel;
    p.timestep = w->timestep, p.dt = w->dt;
    p.evaluation = (int32_t)(*w->seed >> 63);
    p.nq = w->nq, p.nv = w->nv, p.nu = w->nu, p.nbody = w->nbody;
    return p;
}

MF_FN mf_episode mf_world_episode(const mf_world *w, int32_t i) {
    return mf_episode_of(*w->seed, w->first_env + (uint32_t)i, (uint32_t)mf_robot_of(w, i)->episode);
}

MF_FN float *mf_world_late(const mf_world *w, int32_t i) { return w->late + (int64_t)i * w->random.latency[1] * w->nu; }

/* Add noise to a row if the policy is to see such. */
MF_FN void mf_world_blur(const mf_world *w, int32_t i, float *obs) {
    if (!(w->random.noise > 0)) return;
    const mf_episode e = mf_world_episode(w, i);
    mf_random_noise(&w->random, &e, mf_robot_of(w, i)->step, obs, w->obs_size);
}

/* Put the world at the start of its episode; nothing of the last one is left that the physics reads. */
MF_FN void mf_world_start(const void *params, const mf_world *w, int32_t i, int32_t start_step) {
    mf_robot *r = mf_robot_of(w, i);
    const mf_physics p = mf_world_view(w, i);
    const int64_t k = i;
    mf_rng rng;
    mf_rng_start(&rng, *w->seed, w->first_env + (uint32_t)i, (uint32_t)r->episode, 0);
    MF_RULE_RESET(w, params, &p, &rng, w->qpos + k * w->nq, w->qvel + k * w->nv);
    for (int32_t j = 0; j < w->nv; j++) w->qacc[k * w->nv + j] = w->qacc_warmstart[k * w->nv + j] = 0;
    for (int32_t j = 0; j < w->na; j++) w->act[k * w->na + j] = w->act_dot[k * w->na + j] = 0;
    for (int32_t j = 0; j < w->nu; j++) w->ctrl[k * w->nu + j] = 0;
    for (int32_t j = 0; j < 6 * w->nbody; j++) w->cfrc_ext[k * 6 * w->nbody + j] = 0;
    for (int32_t j = 0; j < w->num_info; j++) w->sums[k * w->num_info + j] = 0;
    for (int32_t j = 0; w->late && j < w->random.latency[1] * w->nu; j++) mf_world_late(w, i)[j] = 0;
    w->time[i] = 0;
    w->overflow[i] = 0;
    r->step = start_step;
    r->warnings = 0;
    r->pending = 0;
    r->fresh = 1;
}

/* Start the world's first episode; its row follows by mf_world_begin. */
MF_FN void mf_world_first(const void *params, const mf_world *w, const mf_world_rows *rows, int32_t i) {
    const int64_t id = (int64_t)w->first_env + i;
    (void)rows;
    mf_robot_of(w, i)->episode = 0;
    mf_world_start(params, w, i, w->stagger ? (int32_t)(id * w->max_steps / w->total_envs) : 0);
}

MF_FN void mf_world_act(const void *params, const mf_world *w, const mf_world_rows *rows, int32_t i) {
    const int64_t at = (int64_t)i * w->nu;
    const mf_robot *r = mf_robot_of(w, i);
    (void)params;
    for (int32_t j = 0; j < w->nu; j++) w->ctrl[at + j] = r->pending ? 0 : rows->action[at + j];
    if (r->pending || !(w->late || w->random.push > 0)) return;
    const mf_episode e = mf_world_episode(w, i);
    if (w->late) {
        const int32_t delay = mf_random_latency(&w->random, &e);
        for (int32_t j = 0; j < w->nu; j++)
            w->ctrl[at + j] = mf_random_late(&w->random, mf_world_late(w, i), delay, r->step, w->nu, j, w->ctrl[at + j]);
    }
    if (w->random.push > 0) mf_random_push(&w->random, &e, r->step, w->qvel + (int64_t)i * w->nv);
}

/* Give the world the masses, friction, strength and look of the episode that it begins. */
MF_FN void mf_world_weigh(const mf_world *w, int32_t i, float *scratch, int32_t lane, int32_t lanes) {
    if (!mf_robot_of(w, i)->fresh && !w->redraw) return;
    const mf_episode e = mf_world_episode(w, i);
    mf_weigh(&w->fields, &w->random, &e, i, scratch, w->nv, w->nbody, w->ntendon, lane, lanes);
}

MF_FN int32_t mf_world_small(const float *v, int32_t n) {
    for (int32_t j = 0; j < n; j++)
        if (!(fabs(v[j]) <= MF_MOST_VALUE)) return 0;
    return 1;
}

/* Write what the critic may see of any robot: qpos, qvel, the actuators' forces on the joints, contact forces on the
   bodies but the world. Returns 1 if all of it is finite. */
MF_FN int32_t mf_world_reveal(const mf_physics *p, float *row) {
    const float *from[] = {p->qpos, p->qvel, p->qfrc_actuator, p->cfrc_ext + 6};
    const int32_t count[] = {p->nq, p->nv, p->nv, 6 * (p->nbody - 1)};
    int32_t good = 1;
    for (int32_t part = 0; part < 4; part++)
        for (int32_t j = 0; j < count[part]; j++) {
            *row++ = from[part][j];
            good &= isfinite(from[part][j]) != 0;
        }
    return good;
}

/* Write the flags of a row of no step: a first one, or that before it. */
MF_FN void mf_world_quiet(const mf_world_rows *rows, int32_t i, int32_t first) {
    rows->reward[i] = 0;
    rows->terminal[i] = rows->truncation[i] = 0;
    rows->mask[i] = rows->reset[i] = (uint8_t)first;
}

MF_FN void mf_world_step(const void *params, const mf_world *w, const mf_world_rows *rows, int32_t i) {
    mf_robot *r = mf_robot_of(w, i);
    if (r->pending) {
        r->episode++;
        mf_world_start(params, w, i, 0);
        return;
    }
    const mf_physics p = mf_world_view(w, i);
    const int64_t k = i;
    float *obs = rows->obs + k * w->obs_size, *sums = w->sums + k * w->num_info, info[MF_MOST_INFO], reward = 0;
    int32_t terminal = MF_RULE_AFTER(w, params, &p, &r->task, rows->action + k * w->nu, &reward, info);
    MF_RULE_BEFORE(w, params, &p, &r->task);
    MF_RULE_OBSERVE(w, params, &p, obs);
    r->step++;
    mf_world_blur(w, i, obs);
    if (w->overflow[i] & w->lost) {
        r->warnings++;
        r->overflow |= w->overflow[i] & w->lost;
    }
    w->overflow[i] = 0;
    int32_t stable = isfinite(reward) && mf_world_small(p.qpos, w->nq) && mf_world_small(p.qvel, w->nv) &&
                     mf_world_small(w->qacc + k * w->nv, w->nv);
    for (int32_t j = 0; j < w->obs_size; j++) stable &= isfinite(obs[j]) != 0;
    float *seen = rows->privileged + k * w->privileged_size;
    if (w->privileged_size) stable &= mf_world_reveal(&p, seen);
    if (stable) {
        for (int32_t j = 0; j < w->num_info; j++) sums[j] = w->summed[j] ? sums[j] + info[j] : info[j];
    } else {
        for (int32_t j = 0; j < w->obs_size; j++) obs[j] = rows->last_obs[k * w->obs_size + j];
        for (int32_t j = 0; j < w->privileged_size; j++) seen[j] = rows->last_privileged[k * w->privileged_size + j];
        reward = 0;
        terminal = 1;
        r->unstable++;
    }
    const int32_t limit = stable && r->step >= w->max_steps;
    r->pending = terminal || limit;
    rows->reward[i] = reward;
    rows->terminal[i] = (uint8_t)(terminal || (limit && w->limit_is_terminal));
    rows->truncation[i] = (uint8_t)(limit && !w->limit_is_terminal);
    rows->mask[i] = (uint8_t)!r->pending;
    rows->reset[i] = 0;
    if (r->pending) {
        float *stats = rows->stats + k * w->num_stats;
        for (int32_t j = 0; j < w->num_stats - 2; j++) stats[j] = sums[w->stat_of[j]];
        stats[w->num_stats - 2] = (float)r->warnings;
        stats[w->num_stats - 1] = (float)!stable;
    }
}

/* Write the first row of an episode that has just begun. */
MF_FN void mf_world_begin(const void *params, const mf_world *w, const mf_world_rows *rows, int32_t i) {
    mf_robot *r = mf_robot_of(w, i);
    if (!r->fresh) return;
    const mf_physics p = mf_world_view(w, i);
    r->fresh = 0;
    w->overflow[i] = 0;
    MF_RULE_BEFORE(w, params, &p, &r->task);
    float *obs = rows->obs + (int64_t)i * w->obs_size;
    MF_RULE_OBSERVE(w, params, &p, obs);
    mf_world_blur(w, i, obs);
    if (w->privileged_size) mf_world_reveal(&p, rows->privileged + (int64_t)i * w->privileged_size);
    mf_world_quiet(rows, i, 1);
}

#endif
