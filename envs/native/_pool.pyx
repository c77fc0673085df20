"""Steps blocks of environments on a pool of native threads (pool.h).

    ready = Ready(num_blocks);  pool = Pool(ready, jobs, num_threads, keep=batches)
    pool.step(i)  …  ready.wait(timeout)  …  pool.close()

Used by the threads backend and inside worker processes.

Threads write to memory that Python objects own. The pool holds these objects until its threads have ended, however the
pool itself is dropped. This module holds those of a thread that outlives its pool.
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


PATIENCE_S = 2.0
"""Seconds that closing waits for a thread that is inside a step."""

cdef list _late = []
"""[(address of a closed pool whose threads have not all ended, the objects that they use)]. A C variable, since the
interpreter clears a module's Python variables before the process ends."""


cdef class Pool:
    """Starts threads, and defines one job for each block of `ready`.

    Args:
        ready: receives the finished blocks.
        jobs: [(address of fn, address of ctx, n)], as returned by `EnvBatch.native_job()`.
        num_threads: threads to start; 0 is allowed if the caller helps (worker processes).
        spin_s: seconds that an idle thread spins before it sleeps.
        chunks: most pieces that a job is cut into.
        keep: what owns the memory that the jobs use (batches). It is held, as `ready` is, until the threads have ended.
    """

    cdef mf_pool *pool
    cdef readonly object ready
    cdef object keep
    cdef readonly int num_threads

    def __cinit__(self, ready, jobs, int num_threads, *, double spin_s=0.0, int chunks=1, keep=None):
        cdef int j
        _free_late()
        self.ready, self.keep = ready, keep
        self.num_threads = num_threads
        self.pool = mf_pool_new(len(jobs), num_threads, <int64_t>(spin_s * 1e9),
                                <mf_ready *><uintptr_t>ready.address)
        if self.pool == NULL:
            raise MemoryError()
        for j, (fn, ctx, n) in enumerate(jobs):
            mf_pool_job(self.pool, j, <mf_job_fn><uintptr_t>fn, <void *><uintptr_t>ctx, n, min(n, chunks))
        error = mf_pool_start(self.pool)
        if error:
            self.close()
            raise no_threads(num_threads, error)

    def __del__(self):
        # Not __dealloc__: the garbage collector runs this before it clears any object of a cycle, so everything that
        # the threads use is still there, and what is kept in _late stays as it is.
        self.close()

    @property
    def address(self) -> int:
        return <uintptr_t>self.pool

    def step(self, int block) -> None:
        """Puts the block in flight (see Ready) and runs its job."""
        if self.pool == NULL:
            raise RuntimeError("step of a closed pool")
        self.ready.depart(block)
        mf_pool_submit(self.pool, block)

    def is_busy(self, int block) -> bool:
        """Whether the block's job is unfinished."""
        return self.pool != NULL and self.pool.jobs[block].remaining > 0

    cpdef bint close(self, double patience_s=PATIENCE_S):
        """Stops the threads, each after its present chunk; may be called twice. Waits without the GIL.

        Returns:
            False: a thread has not ended after patience_s. Its memory, `ready` and `keep` are held until it ends.
        """
        cdef mf_pool *pool = self.pool
        cdef int64_t patience = <int64_t>(patience_s * 1e9)
        cdef int ended
        self.pool = NULL
        if pool == NULL:
            return True
        with nogil:
            ended = mf_pool_free(pool, patience)
        if not ended:
            _late.append((<uintptr_t>pool, self.ready, self.keep))
        self.keep = None
        return bool(ended)


cdef _free_late():
    """Frees the closed pools whose threads have ended since."""
    late = list(_late)
    _late.clear()  # at first, since finalizers may run in between and close other pools
    _late.extend([entry for entry in late if not mf_pool_free(<mf_pool *><uintptr_t>entry[0], 0)])
