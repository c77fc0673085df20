"""Tests pools (pool.h) that are closed with jobs in flight, or while a thread hangs, with gcc's sanitizers."""

from __future__ import annotations

import subprocess

import pytest

from tests.vector.test_parts import compiled

CLOSED = r"""
#include "pool.h"
#include <stdio.h>
#include <sys/wait.h>

enum { JOBS = 3, N = 16 };
typedef struct {
    int rows[N];             /* a batch's rows: plain memory, freed once all threads have ended */
    _Atomic int begun, gate; /* gate 0: jobs wait */
} batch;

static int32_t job(void *ctx, int32_t lo, int32_t hi) {
    batch *b = ctx;
    atomic_fetch_add(&b->begun, 1);
    while (!atomic_load(&b->gate))
        mf_pause();
    for (int32_t i = lo; i < hi; i++)
        b->rows[i]++;
    return 0;
}

static mf_ready *ready;
static batch *batches[JOBS];

static mf_pool *make(int threads, int gate) {
    ready = aligned_alloc(64, mf_ready_size(JOBS));
    mf_ready_init(ready, JOBS);
    mf_pool *pool = mf_pool_new(JOBS, threads, 1000, ready);
    for (int j = 0; j < JOBS; j++) {
        batches[j] = calloc(1, sizeof(batch));
        atomic_store(&batches[j]->gate, gate);
        mf_pool_job(pool, j, job, batches[j], N, 4);
    }
    return mf_pool_start(pool) ? NULL : pool;
}

static void free_all(void) {
    free(ready);
    for (int j = 0; j < JOBS; j++)
        free(batches[j]);
}

int main(void) {
    for (int round = 0; round < 60; round++) { /* closed in flight, at any moment */
        mf_pool *pool = make(1 + round % 3, 1);
        for (int j = 0; j < JOBS; j++)
            mf_pool_submit(pool, j);
        for (volatile int wait = 0; wait < round * 100; wait++) {
        }
        if (!mf_pool_free(pool, 30000000000))
            return puts("did not end"), 1;
        free_all();
    }
    mf_pool *pool = make(2, 0); /* both threads hang */
    mf_pool_submit(pool, 0);
    mf_pool_submit(pool, 1);
    while (atomic_load(&batches[0]->begun) + atomic_load(&batches[1]->begun) < 2)
        mf_pause();
    const int first = mf_pool_free(pool, 1000000), second = mf_pool_free(pool, 0);
    int status = 0;
    if (fork() == 0) /* a copy without threads: nothing to wait for, and nothing may be freed */
        _exit(mf_pool_free(pool, 60000000000));
    wait(&status);
    for (int j = 0; j < JOBS; j++)
        atomic_store(&batches[j]->gate, 1);
    const int last = mf_pool_free(pool, 30000000000);
    free_all();
    printf("hung %d %d forked %d ended %d\n", first, second, status, last);
    return 0;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("flags", [[], ["-DMF_NO_FUTEX"]])
def test_a_pool_may_be_closed_in_flight_and_while_a_thread_hangs(tmp_path, sanitizer, flags):
    program = compiled(tmp_path, CLOSED, "-g", f"-fsanitize={sanitizer}", *flags)
    ran = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "hung 0 0 forked 0 ended 1\n")
