"""Steps blocks of environments on a pool of native threads (pool.h).

    ready = Ready(num_blocks);  pool = Pool(ready, jobs, num_threads)
    pool.step(i)  …  ready.wait(timeout)

Used by the threads backend and inside worker processes.
"""

from libc.stdint cimport int32_t, int64_t, uintptr_t

from metta_fast.contracts.errors import no_threads

cdef extern from "pool.h" nogil:
    ctypedef struct mf_ready:
        pass
    ctypedef struct mf_job:
        int32_t remaining, n
    ctypedef struct mf_pool:
        mf_job *jobs
    ctypedef int32_t (*mf_job_fn)(void *ctx, int32_t lo, int32_t hi) noexcept nogil
    mf_pool *mf_pool_new(int32_t num_jobs, int32_t num_threads, int64_t spin_ns, mf_ready *ready)
    void mf_pool_job(mf_pool *pool, int32_t j, mf_job_fn fn, void *ctx, int32_t n, int32_t chunks)
    int mf_pool_start(mf_pool *pool)
    void mf_pool_submit(mf_pool *pool, int32_t j)
    int mf_pool_free(mf_pool *pool, int64_t patience_ns)


cdef class Pool:
    """Starts threads, and defines one job for each block of `ready`.

    Args:
        ready: receives the finished blocks; kept alive.
        jobs: [(address of fn, address of ctx, n)], as returned by `EnvBatch.native_job()`.
        num_threads: threads to start; 0 is allowed if the caller helps (worker processes).
        spin_s: seconds that an idle thread spins before it sleeps.
        chunks: most pieces that a job is cut into.
    """

    cdef mf_pool *pool
    cdef readonly object ready
    cdef readonly int num_threads

    def __cinit__(self, ready, jobs, int num_threads, *, double spin_s=0.0, int chunks=1):
        cdef int j
        self.ready = ready
        self.num_threads = num_threads
        self.pool = mf_pool_new(len(jobs), num_threads, <int64_t>(spin_s * 1e9),
                                <mf_ready *><uintptr_t>ready.address)
        if self.pool == NULL:
            raise MemoryError()
        for j, (fn, ctx, n) in enumerate(jobs):
            mf_pool_job(self.pool, j, <mf_job_fn><uintptr_t>fn, <void *><uintptr_t>ctx, n, min(n, chunks))
        error = mf_pool_start(self.pool)
        if error:
            mf_pool_free(self.pool, 1000000000)
            self.pool = NULL
            raise no_threads(num_threads, error)

    def __dealloc__(self):
        self.close(0.0)

    @property
    def address(self) -> int:
        return <uintptr_t>self.pool

    def step(self, int block) -> None:
        """Puts the block in flight (see Ready) and runs its job."""
        self.ready.depart(block)
        mf_pool_submit(self.pool, block)

    def is_busy(self, int block) -> bool:
        """Whether the block's job is unfinished."""
        return self.pool != NULL and self.pool.jobs[block].remaining > 0

    cpdef bint close(self, double patience_s):
        """Stops the threads, each after its present chunk; may be called twice.

        Returns:
            False: a thread hangs. It keeps running and the pool's memory stays allocated, so all memory that its job
            uses must be kept.
        """
        cdef mf_pool *pool = self.pool
        cdef int64_t patience = <int64_t>(patience_s * 1e9)
        cdef int ended
        self.pool = NULL
        if pool == NULL:
            return True
        with nogil:
            ended = mf_pool_free(pool, patience)
        return bool(ended)
