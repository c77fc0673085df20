/* thread_team.h: shares pieces of work between the caller and other threads (pool.h). The caller begins at once and
 * takes all pieces that remain, so it never waits for a thread that wakes late. */
#ifndef MF_TEAM_H
#define MF_TEAM_H

#include "pool.h"

typedef struct {
    mf_ready *ready;
    mf_pool *pool;
} mf_team;

/* Stops the threads and frees the memory; safe for a zeroed struct. */
static void mf_team_free(mf_team *team)
{
    if (!team->pool || mf_pool_free(team->pool, 1000000000))
        free(team->ready);
    team->pool = 0, team->ready = 0;
}

/* Makes a team of the caller and `others` threads, which spin for spin_ns before they sleep. Returns 0 without memory. */
static int mf_team_make(mf_team *team, int jobs, int others, int64_t spin_ns)
{
    team->ready = aligned_alloc(MF_LINE, mf_ready_size(jobs));
    if (!team->ready)
        return 0;
    mf_ready_init(team->ready, jobs);
    team->pool = mf_pool_new(jobs, others, spin_ns, team->ready);
    return team->pool != 0;
}

/* Defines job j as work(context, lo, hi) over 0 … parts-1, one part at a time. Define all jobs before the start. */
static void mf_team_job(mf_team *team, int j, mf_job_fn work, void *context, int parts)
{
    mf_pool_job(team->pool, j, work, context, parts, parts);
}

/* Starts the threads; returns 0 or the error number of pthread_create. */
static int mf_team_start(mf_team *team) { return mf_pool_start(team->pool); }

/* Runs job j; one call at a time. */
static void mf_team_do(mf_team *team, int j) { mf_pool_run(team->pool, j); }

#endif
