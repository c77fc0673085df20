/* pool.h: runs jobs on threads, e.g. stepping blocks of native environments.

     mf_pool_submit(pool, j) ─► threads take chunks of the job submitted first
                                 └─ last chunk of job j done ─► mf_ready_push(ready, j)

   A job is `fn(ctx, lo, hi)` over 0 … n-1, cut into chunks; fn, ctx and n are fixed for the pool's life. There is one
   job per block. Submitting takes no lock. Idle threads spin briefly, then sleep. A submission wakes one thread; each
   thread that takes a chunk while others remain wakes the next. */
#ifndef MF_POOL_H
#define MF_POOL_H

#include "sync.h"
#include <signal.h>
#include <unistd.h>

/* Returns 0, or another number if an environment has failed (contracts/env.py: EnvBatch.raise_fault). */
typedef int32_t (*mf_job_fn)(void *ctx, int32_t lo, int32_t hi);

typedef struct {
    mf_job_fn fn;
    void *ctx;
    int32_t n, chunk, chunks;
    _Alignas(MF_LINE) _Atomic int64_t cursor;    /* next chunk to take; >= chunks: none left */
    _Atomic uint64_t ticket;                     /* number of the submission */
    _Alignas(MF_LINE) _Atomic int32_t remaining; /* chunks not done */
    _Atomic int32_t fault;                       /* 1: fn returned an error */
} mf_job;

typedef struct {
    mf_bell bell;
    _Alignas(MF_LINE) _Atomic int32_t stop;
    _Atomic int32_t alive; /* threads that have not ended; a thread's last access to the pool counts it down */
    pid_t owner;           /* the process whose threads they are: a forked copy of it has none */
    int32_t num_jobs, wanted, num_threads; /* wanted: threads to start; num_threads: started ones */
    uint64_t ticket; /* submissions so far; used by the submitter only */
    int64_t spin_ns;
    mf_ready *ready;
    mf_job *jobs;       /* [num_jobs] */
    pthread_t *threads; /* [wanted] */
} mf_pool;

MF_SYNC int64_t mf_lines(int64_t bytes) { return (bytes + MF_LINE - 1) / MF_LINE * MF_LINE; }

/* Takes and runs one chunk of job j; returns 0 if none was left. */
MF_SYNC int mf_pool_chunk(mf_pool *pool, int32_t j) {
    mf_job *job = &pool->jobs[j];
    if (atomic_load(&job->cursor) >= job->chunks)
        return 0;
    const int64_t c = atomic_fetch_add(&job->cursor, 1);
    if (c >= job->chunks)
        return 0;
    if (c + 1 < job->chunks && atomic_load(&pool->bell.sleepers) > 0)
        mf_bell_ring(&pool->bell, 1);
    const int32_t lo = (int32_t)c * job->chunk, end = lo + job->chunk;
    if (job->fn(job->ctx, lo, end < job->n ? end : job->n)) {
        atomic_store(&job->fault, 1);
        mf_ready_fault(pool->ready);
    }
    if (atomic_fetch_sub(&job->remaining, 1) == 1)
        mf_ready_push(pool->ready, j);
    return 1;
}

/* Returns the job that was submitted first among those with chunks left, or -1. */
MF_SYNC int32_t mf_pool_oldest(mf_pool *pool) {
    int32_t oldest = -1;
    uint64_t ticket = UINT64_MAX;
    for (int32_t j = 0; j < pool->num_jobs; j++) {
        mf_job *job = &pool->jobs[j];
        const uint64_t t = atomic_load_explicit(&job->ticket, memory_order_relaxed);
        if (t < ticket && atomic_load(&job->cursor) < job->chunks) {
            oldest = j;
            ticket = t;
        }
    }
    return oldest;
}

/* A thread sleeps only if it found no chunk after reading the bell, and a submission rings after publishing its chunks;
   so no submission is missed. */
static __attribute__((unused)) void *mf_pool_thread(void *arg) {
    mf_pool *pool = (mf_pool *)arg;
    int64_t idle_since = 0;
    while (!atomic_load(&pool->stop)) {
        const uint32_t seen = mf_bell_seen(&pool->bell);
        const int32_t j = mf_pool_oldest(pool);
        if (j >= 0) {
            const uint64_t ticket = atomic_load(&pool->jobs[j].ticket);
            while (mf_pool_chunk(pool, j) && atomic_load(&pool->jobs[j].ticket) == ticket && !atomic_load(&pool->stop)) {
            }
            idle_since = 0;
            continue;
        }
        if (pool->spin_ns > 0) {
            const int64_t now = mf_now_ns();
            if (idle_since == 0)
                idle_since = now;
            if (now - idle_since < pool->spin_ns) {
                for (int i = 0; i < 16; i++)
                    mf_pause();
                continue;
            }
        }
        if (!atomic_load(&pool->stop))
            mf_bell_wait(&pool->bell, seen, -1);
    }
    atomic_fetch_sub(&pool->alive, 1);
    return NULL;
}

/* Allocates a pool; returns NULL without memory. Define each job with mf_pool_job before mf_pool_start. */
MF_SYNC mf_pool *mf_pool_new(int32_t num_jobs, int32_t wanted, int64_t spin_ns, mf_ready *ready) {
    const int64_t head = mf_lines(sizeof(mf_pool)), jobs = mf_lines(num_jobs * (int64_t)sizeof(mf_job));
    const int64_t total = head + jobs + mf_lines((wanted + 1) * (int64_t)sizeof(pthread_t));
    char *memory = (char *)aligned_alloc(MF_LINE, (size_t)total);
    if (!memory)
        return NULL;
    memset(memory, 0, (size_t)total);
    mf_pool *pool = (mf_pool *)memory;
    mf_bell_init(&pool->bell);
    pool->num_jobs = num_jobs;
    pool->wanted = wanted;
    pool->spin_ns = spin_ns;
    pool->ready = ready;
    pool->jobs = (mf_job *)(memory + head);
    pool->threads = (pthread_t *)(memory + head + jobs);
    return pool;
}

MF_SYNC void mf_pool_job(mf_pool *pool, int32_t j, mf_job_fn fn, void *ctx, int32_t n, int32_t chunks) {
    mf_job *job = &pool->jobs[j];
    job->fn = fn;
    job->ctx = ctx;
    job->n = n;
    job->chunk = (n + chunks - 1) / chunks;
    job->chunks = (n + job->chunk - 1) / job->chunk;
    atomic_init(&job->cursor, job->chunks);
}

/* Starts the threads, which receive no signals. Returns 0, or the error number of pthread_create; threads that were
   started before the error keep running. */
MF_SYNC int mf_pool_start(mf_pool *pool) {
    sigset_t all, before;
    pool->owner = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (pool->num_threads < pool->wanted && !error) {
        atomic_fetch_add(&pool->alive, 1);
        error = pthread_create(&pool->threads[pool->num_threads], NULL, mf_pool_thread, pool);
        if (error)
            atomic_fetch_sub(&pool->alive, 1);
        else
            pool->num_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Starts job j, which must not be in flight. One caller at a time. */
MF_SYNC void mf_pool_submit(mf_pool *pool, int32_t j) {
    mf_job *job = &pool->jobs[j];
    atomic_store(&job->ticket, ++pool->ticket);
    atomic_store(&job->remaining, job->chunks);
    atomic_store(&job->cursor, 0); /* publishes the chunks */
    mf_bell_ring(&pool->bell, 1);
}

/* Submits job j, helps with it and returns when it is done; not 0 if fn returned an error. For a pool with one job in
   flight at a time. */
MF_SYNC int32_t mf_pool_run(mf_pool *pool, int32_t j) {
    mf_pool_submit(pool, j);
    while (mf_pool_chunk(pool, j)) {
    }
    while (mf_ready_wait(pool->ready, pool->spin_ns, -1) < 0) {
    }
    return atomic_load(&pool->jobs[j].fault);
}

/* Stops the threads after their present chunks. Returns 1 if all ended and the memory is freed. Returns 0 if a chunk
   takes longer than patience_ns, or in a forked copy of the process: the threads may still use the pool, its `ready` and
   the jobs' memory. Call it again later to free them. */
MF_SYNC int mf_pool_free(mf_pool *pool, int64_t patience_ns) {
    if (pool->num_threads > 0 && pool->owner != getpid())
        return 0;
    atomic_store(&pool->stop, 1);
    mf_bell_ring(&pool->bell, pool->num_threads);
    const int64_t end = mf_now_ns() + patience_ns;
    const struct timespec nap = {0, 100000};
    while (atomic_load(&pool->alive) > 0 && mf_now_ns() < end)
        nanosleep(&nap, NULL);
    if (atomic_load(&pool->alive) > 0)
        return 0;
    for (int32_t t = 0; t < pool->num_threads; t++)
        pthread_join(pool->threads[t], NULL);
    free(pool);
    return 1;
}

#endif
