/* thread_team.h: the caller and some threads share pieces of work (pool.h); the caller begins at once and does what
 * is left, so that a thread which wakes late costs nothing but its help. */
#ifndef MF_TEAM_H
#define MF_TEAM_H

#include "pool.h"

typedef struct {
    mf_ready *ready;
    mf_pool *pool;
} mf_team;

/* 1: the threads are stopped and the memory is freed; call it for zeros too. */
static void mf_team_free(mf_team *team)
{
    if (!team->pool || mf_pool_free(team->pool, 1000000000))
        free(team->ready);
    team->pool = 0, team->ready = 0;
}

/* Of `jobs` pieces of work and the caller with `others` threads, which spin so long before they sleep. 0: no memory. */
static int mf_team_make(mf_team *team, int jobs, int others, int64_t spin_ns)
{
    team->ready = aligned_alloc(MF_LINE, mf_ready_size(jobs));
    if (!team->ready)
        return 0;
    mf_ready_init(team->ready, jobs);
    team->pool = mf_pool_new(jobs, others, spin_ns, team->ready);
    return team->pool != 0;
}

/* Work j is work(context, lo, hi) over 0 … parts-1, one part at a time. All jobs come before the start. */
static void mf_team_job(mf_team *team, int j, mf_job_fn work, void *context, int parts)
{
    mf_pool_job(team->pool, j, work, context, parts, parts);
}

/* 0, or the error number of pthread_create. */
static int mf_team_start(mf_team *team) { return mf_pool_start(team->pool); }

/* Do work j; one call at a time. */
static void mf_team_do(mf_team *team, int j) { mf_pool_run(team->pool, j); }

#endif
