"""Shares memory between processes, and lets them wait for and wake each other's blocks (sync.h, board.h, pool.h).

    Memory    pages of memory, private or shared through a file descriptor; numpy arrays are views of it
    Ready     the blocks of a vector: held by the caller, in flight, ready; `wait` sleeps without the GIL
    Board     the parent's side of the memory shared with worker processes
    Station   a worker's side

Used by metta_fast/vector. Imports nothing heavy. Python's signal handlers run while waiting (Ctrl-C works).
One file: the four classes share the C structs of one piece of memory and are cdef classes of one module.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

import os

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *at, size_t size, int protection, int flags, int fd, long offset)
    int munmap(void *at, size_t size)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS
    void *MAP_FAILED

cdef extern from "<unistd.h>" nogil:
    int getppid()

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from *:
    """
    #include <signal.h>
    #if defined(__linux__)
    #include <sys/prctl.h>
    static void mf_die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }
    static void mf_name_process(const char *name) { prctl(PR_SET_NAME, name); }
    #else
    static void mf_die_with_parent(void) {}
    static void mf_name_process(const char *name) { (void)name; }
    #endif
    """
    void mf_die_with_parent()
    void mf_name_process(const char *name)

cdef extern from "sync.h" nogil:
    enum: MF_FUTEX
    ctypedef struct mf_ready:
        uint32_t fault
    int64_t mf_now_ns()
    int64_t mf_ready_size(int64_t num_blocks)
    void mf_ready_init(mf_ready *ready, int64_t num_blocks)
    void mf_ready_push(mf_ready *ready, int32_t block)
    void mf_ready_fault(mf_ready *ready)
    int32_t mf_ready_pop(mf_ready *ready)
    int32_t mf_ready_wait(mf_ready *ready, int64_t spin_ns, int64_t timeout_ns)

cdef extern from "board.h" nogil:
    int MF_OP_STEP, MF_OP_RESET, MF_OP_MESSAGE
    ctypedef struct mf_mail:
        uint64_t request, done
        int32_t op
    ctypedef struct mf_worker:
        uint64_t progress
        int32_t fault_env, raised
    ctypedef struct mf_block:
        int32_t first, last
    ctypedef struct mf_board:
        int32_t num_workers, num_blocks, stagger
        uint64_t seed
        int64_t size
    mf_block *mf_board_block(mf_board *b, int32_t i)
    mf_worker *mf_board_worker(mf_board *b, int32_t w)
    mf_ready *mf_board_ready(mf_board *b)
    mf_mail *mf_board_mail(mf_board *b, int32_t w, int32_t box)
    void mf_board_layout(mf_board *b, int32_t num_workers, int32_t num_blocks)
    void mf_board_init(mf_board *b, int32_t num_workers, int32_t num_blocks)
    void mf_board_post(mf_board *b, int32_t block, int32_t op)
    void mf_board_message(mf_board *b, int32_t w)
    int32_t mf_board_look(mf_board *b, int32_t w)
    int32_t mf_board_next(mf_board *b, int32_t w, int64_t spin_ns, int64_t timeout_ns)
    void mf_board_finish(mf_board *b, int32_t w, int32_t box)

cdef extern from "pool.h" nogil:
    ctypedef struct mf_pool:
        pass
    ctypedef int32_t (*mf_job_fn)(void *ctx, int32_t lo, int32_t hi) noexcept nogil
    int32_t mf_pool_run(mf_pool *pool, int32_t j)

USES_FUTEX = bool(MF_FUTEX)
STEP, RESET, MESSAGE, FAULTY, ORPHANED = MF_OP_STEP, MF_OP_RESET, MF_OP_MESSAGE, 3, 4
NOTHING, FAULT = -1, -2
"""Results of `Ready.wait`: no block was ready in time; a failure occurred, check the backend."""
cdef int64_t LOOK_NS = 1_000_000_000
"""Nanoseconds between two checks of a waiting worker that its parent is alive."""


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent dies (Linux only)."""
    mf_die_with_parent()


def name_process(str name) -> None:
    """Sets the name that ps and top show (Linux only; 15 bytes)."""
    mf_name_process(name.encode()[:15])


cdef class Memory:
    """Provides `size` bytes of zeroed, page-aligned memory through the buffer protocol.

    It is unmapped when the last array over it is gone. With `fd` it maps that file, shared with all processes that map
    it; the descriptor may be closed afterwards.
    """

    cdef void *at
    cdef readonly size_t size

    def __cinit__(self, size_t size, int fd=-1):
        cdef int flags = MAP_PRIVATE | MAP_ANONYMOUS if fd < 0 else MAP_SHARED
        self.size = size if size > 0 else 1
        self.at = mmap(NULL, self.size, PROT_READ | PROT_WRITE, flags, fd, 0)
        if self.at == MAP_FAILED:
            self.at = NULL
            raise OSError(errno, f"mmap of {size} bytes: {os.strerror(errno)}")

    def __dealloc__(self):
        if self.at != NULL:
            munmap(self.at, self.size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.at, <Py_ssize_t>self.size, 0, flags)

    @property
    def address(self) -> int:
        return <uintptr_t>self.at


cdef class Ready:
    """Tracks which of `num_blocks` blocks are held by the caller or in flight, and queues those that become ready.

    One thread receives; any thread or process may push.
    """

    cdef mf_ready *ready
    cdef char *held
    cdef bint owns      # the memory is this object's own
    cdef object keep    # otherwise: its owner
    cdef readonly int num_blocks
    cdef readonly int in_flight
    cdef readonly int num_held
    cdef int64_t spin_ns

    def __cinit__(self, int num_blocks, *, double spin_s=0.0, uintptr_t address=0, keep=None):
        self.num_blocks = num_blocks
        self.spin_ns = <int64_t>(spin_s * 1e9)
        self.held = <char *>calloc(num_blocks, 1)
        self.keep = keep
        self.owns = not address
        if self.owns:
            self.ready = <mf_ready *>aligned_alloc(64, mf_ready_size(num_blocks))
        else:
            self.ready = <mf_ready *>address
        if self.held == NULL or self.ready == NULL:
            raise MemoryError()
        if self.owns:
            mf_ready_init(self.ready, num_blocks)

    def __dealloc__(self):  # C fields only: the garbage collector may have cleared the others
        free(self.held)
        if self.owns:
            free(self.ready)

    @property
    def address(self) -> int:
        return <uintptr_t>self.ready

    cpdef bint is_held(self, int block):
        return 0 <= block < self.num_blocks and self.held[block]

    cpdef int depart(self, int block) except -1:
        """Marks a block, held or new, as in flight."""
        if not 0 <= block < self.num_blocks:
            raise IndexError(block)
        self.num_held -= self.held[block]
        self.held[block] = 0
        self.in_flight += 1
        return 0

    def push(self, int block) -> None:
        """Marks a block in flight as ready; may be called from any thread."""
        mf_ready_push(self.ready, block)

    def fault(self) -> None:
        """Wakes the receiver at once to check for a failure."""
        mf_ready_fault(self.ready)

    def hold_all(self) -> None:
        """Marks all blocks as held; none may be in flight."""
        cdef int i
        if self.in_flight:
            raise ValueError("blocks are in flight")
        for i in range(self.num_blocks):
            self.held[i] = 1
        self.num_held = self.num_blocks

    cpdef int wait(self, double timeout_s) except? -3:
        """Waits for the first ready block and holds it; returns NOTHING after timeout_s seconds, or FAULT."""
        cdef int32_t block
        cdef int64_t end, left
        if self.ready.fault:
            return -2
        block = mf_ready_pop(self.ready)
        if block < 0:
            end = mf_now_ns() + <int64_t>(timeout_s * 1e9)
            while block < 0:
                left = end - mf_now_ns()
                if left <= 0:
                    return -1
                with nogil:
                    block = mf_ready_wait(self.ready, self.spin_ns, left)
                if block < 0:
                    if self.ready.fault:
                        return -2
                    PyErr_CheckSignals()
        self.held[block] = 1
        self.num_held += 1
        self.in_flight -= 1
        return block


def board_size(int num_workers, int num_blocks) -> int:
    """Returns the size of a board in bytes."""
    cdef mf_board layout
    mf_board_layout(&layout, num_workers, num_blocks)
    return layout.size


cdef class Board:
    """Posts blocks to workers: the parent's view of the board at the start of `memory`.

    Args:
        workers: for each block its workers (first, one past the last).
    """

    cdef mf_board *board
    cdef readonly Memory memory
    cdef readonly Ready ready

    def __cinit__(self, Memory memory, int num_workers, workers, *, double spin_s=0.0):
        cdef int i
        self.memory = memory
        self.board = <mf_board *>memory.at
        mf_board_init(self.board, num_workers, len(workers))
        for i, (first, last) in enumerate(workers):
            mf_board_block(self.board, i).first = first
            mf_board_block(self.board, i).last = last
        self.ready = Ready(len(workers), spin_s=spin_s, keep=memory,
                           address=<uintptr_t>mf_board_ready(self.board))

    def step(self, int block) -> None:
        """Puts the block in flight and has its workers step it."""
        self.ready.depart(block)
        mf_board_post(self.board, block, MF_OP_STEP)

    def reset(self, int block, uint64_t seed, bint stagger) -> None:
        """Puts the block in flight and has its workers reset it. No other reset may be in progress."""
        self.ready.depart(block)
        self.board.seed = seed
        self.board.stagger = stagger
        mf_board_post(self.board, block, MF_OP_RESET)

    def message(self, int worker) -> None:
        """Makes the worker read its socket."""
        mf_board_message(self.board, worker)

    def progress(self, int worker) -> int:
        """Returns how many slices the worker has finished."""
        return mf_board_worker(self.board, worker).progress

    def is_busy(self, int worker) -> bool:
        """Whether the worker has unfinished mail."""
        return mf_board_look(self.board, worker) >= 0

    def raised(self, int worker) -> bool:
        return mf_board_worker(self.board, worker).raised != 0

    def fault_env(self, int worker) -> int:
        """Returns the global index of the environment that raised; -1: unknown."""
        return mf_board_worker(self.board, worker).fault_env


cdef class Station:
    """Receives blocks: worker `worker`'s view of the board at the start of `memory`.

    Args:
        jobs: one per block: None (the caller steps the slice) or `EnvBatch.native_job()`, which this object runs.
        pool: a Pool (_pool.pyx) whose job i is that of block i; None: this thread steps alone.
        keep: what owns the memory that the jobs use (batches); held as long as this object.
        parent: process id of the parent; `next` reports when it is gone. 0: not checked.
    """

    cdef mf_board *board
    cdef Memory memory
    cdef int32_t worker
    cdef int64_t spin_ns
    cdef tuple keep
    cdef mf_pool *pool
    cdef int parent
    cdef mf_job_fn *fn
    cdef void **ctx
    cdef int32_t *n

    def __cinit__(self, Memory memory, int worker, jobs, *, double spin_s=0.0, pool=None, keep=None, int parent=0):
        cdef int i
        cdef int blocks = len(jobs)
        self.keep = (keep, pool)
        self.memory = memory
        self.board = <mf_board *>memory.at
        self.worker = worker
        self.spin_ns = <int64_t>(spin_s * 1e9)
        self.pool = <mf_pool *><uintptr_t>(0 if pool is None else pool.address)
        self.parent = parent
        self.fn = <mf_job_fn *>calloc(blocks, sizeof(mf_job_fn))
        self.ctx = <void **>calloc(blocks, sizeof(void *))
        self.n = <int32_t *>calloc(blocks, sizeof(int32_t))
        if self.fn == NULL or self.ctx == NULL or self.n == NULL:
            raise MemoryError()
        for i, job in enumerate(jobs):
            if job is not None:
                self.fn[i] = <mf_job_fn><uintptr_t>job[0]
                self.ctx[i] = <void *><uintptr_t>job[1]
                self.n[i] = job[2]

    def __dealloc__(self):
        free(self.fn)
        free(self.ctx)
        free(self.n)

    def next(self) -> tuple[int, int]:
        """Steps native slices until there is mail for Python.

        Returns:
            (its box, i.e. the block; STEP, RESET or MESSAGE). FAULTY: a native job of the block reported a fault, and
            the block is unfinished. ORPHANED, with box -1: the parent process has ended.
        """
        cdef int32_t box
        cdef int32_t faulty = 0
        cdef int32_t blocks = self.board.num_blocks
        while True:
            with nogil:
                while True:
                    box = mf_board_next(self.board, self.worker, self.spin_ns, LOOK_NS)
                    if (box < 0 or box == blocks or self.fn[box] == NULL
                            or mf_board_mail(self.board, self.worker, box).op != MF_OP_STEP):
                        break
                    if self.pool != NULL:
                        faulty = mf_pool_run(self.pool, box)
                    else:
                        faulty = self.fn[box](self.ctx[box], 0, self.n[box])
                    if faulty:
                        break
                    mf_board_finish(self.board, self.worker, box)
            if faulty:
                return box, FAULTY
            if box >= 0:
                if box == blocks:  # before the reply, since the next message may follow it at once
                    mf_board_finish(self.board, self.worker, box)
                return box, mf_board_mail(self.board, self.worker, box).op
            PyErr_CheckSignals()
            if self.parent and getppid() != self.parent:
                return -1, ORPHANED

    def finish(self, int box) -> None:
        """Marks the slice of the block as finished. (Messages are finished when `next` returns them.)"""
        mf_board_finish(self.board, self.worker, box)

    @property
    def seed(self) -> int:
        return self.board.seed

    @property
    def stagger(self) -> bool:
        return self.board.stagger != 0


def ring_fault(Memory memory) -> None:
    """Wakes the parent at once; the launcher calls this when a worker died."""
    mf_ready_fault(mf_board_ready(<mf_board *>memory.at))


def report_fault(Memory memory, int worker, int env) -> None:
    """Reports that a worker has written a traceback to its pipe.

    Args:
        env: global index of the environment that raised; -1: unknown.
    """
    cdef mf_board *board = <mf_board *>memory.at
    mf_board_worker(board, worker).fault_env = env
    mf_board_worker(board, worker).raised = 1
    mf_ready_fault(mf_board_ready(board))
