/* emulator.h: kernels of gpu_shell.h on the CPU, to test them without a card.

     #include "emulator.h"      before the kernels
     …
     #define EMULATOR_TAIL
     #include "emulator.h"      after them: mf_emulate(name, grid, block, args, order)

   One block after another; its threads are fibers that change only where CUDA's may wait for each other (__syncwarp,
   __syncthreads, votes, shuffles), in an order drawn anew each time. A missing barrier therefore shows as a wrong
   result for some order; a barrier that not all come to is an error. */
#ifndef EMULATOR_TAIL
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

struct EmulatedIndex {
    unsigned x, y;
};
static EmulatedIndex threadIdx, blockIdx, blockDim;

namespace emulator {
enum Wait { RUN, AT_WARP, AT_BLOCK, DONE };
struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(128 * 1024);
    Wait wait;
    int32_t slot; /* what it brings to a vote or shuffle */
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned current, threads;
static uint64_t order;
static void (*body)(void **);
static void **arguments;
static char problem[200];

static uint32_t draw(uint32_t below) {
    order = order * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((order >> 33) % below);
}

static void pause(Wait wait) {
    fibers[current].wait = wait;
    swapcontext(&fibers[current].context, &scheduler);
}

static void run_fiber() {
    body(arguments);
    fibers[current].wait = DONE;
    swapcontext(&fibers[current].context, &scheduler);
}

/* Let go the threads [lo, hi) if all that are not done wait at the same place. */
static void release(unsigned lo, unsigned hi, Wait at) {
    for (unsigned i = lo; i < hi; i++)
        if (fibers[i].wait != at && !(at == AT_BLOCK && fibers[i].wait == DONE))
            return;
    for (unsigned i = lo; i < hi; i++)
        if (fibers[i].wait == at)
            fibers[i].wait = RUN;
}

static int run_block(unsigned bx, unsigned by) {
    threads = bx * by;
    blockDim = {bx, by};
    if (fibers.size() < threads)
        fibers = std::vector<Fiber>(threads);
    for (unsigned i = 0; i < threads; i++) {
        getcontext(&fibers[i].context);
        fibers[i].context.uc_stack.ss_sp = fibers[i].stack.data();
        fibers[i].context.uc_stack.ss_size = fibers[i].stack.size();
        fibers[i].context.uc_link = nullptr;
        makecontext(&fibers[i].context, run_fiber, 0);
        fibers[i].wait = RUN;
    }
    for (;;) {
        std::vector<unsigned> ready;
        unsigned done = 0;
        for (unsigned i = 0; i < threads; i++) {
            if (fibers[i].wait == RUN)
                ready.push_back(i);
            done += fibers[i].wait == DONE;
        }
        if (done == threads || problem[0])
            return problem[0] ? 1 : 0;
        if (ready.empty()) {
            snprintf(problem, sizeof problem, "block %u: not every thread came to a barrier", blockIdx.x);
            return 1;
        }
        for (unsigned i = (unsigned)ready.size(); i > 1; i--) {
            const unsigned j = draw(i), swap = ready[i - 1];
            ready[i - 1] = ready[j], ready[j] = swap;
        }
        for (unsigned i : ready) {
            current = i;
            threadIdx = {i % bx, i / bx};
            swapcontext(&scheduler, &fibers[i].context);
        }
        for (unsigned w = 0; w < threads; w += 32)
            release(w, w + 32 < threads ? w + 32 : threads, AT_WARP);
        release(0, threads, AT_BLOCK);
    }
}
} // namespace emulator

static inline void __syncwarp() { emulator::pause(emulator::AT_WARP); }
static inline void __syncthreads() { emulator::pause(emulator::AT_BLOCK); }
static inline uint32_t __ballot_sync(uint32_t, int flag) {
    const unsigned warp = emulator::current / 32 * 32;
    uint32_t vote = 0;
    emulator::fibers[emulator::current].slot = flag;
    __syncwarp();
    for (unsigned i = 0; i < 32; i++)
        vote |= (uint32_t)(emulator::fibers[warp + i].slot != 0) << i;
    __syncwarp();
    return vote;
}
static inline int32_t __shfl_xor_sync(uint32_t, int32_t x, int far) {
    const unsigned other = emulator::current ^ (unsigned)far;
    emulator::fibers[emulator::current].slot = x;
    __syncwarp();
    const int32_t theirs = emulator::fibers[other].slot;
    __syncwarp();
    return theirs;
}
static inline int32_t __shfl_sync(uint32_t, int32_t x, int from) {
    return __shfl_xor_sync(0, x, (int)(emulator::current % 32) ^ from);
}
static inline uint32_t atomicXor(uint32_t *at, uint32_t bits) {
    const uint32_t was = *at;
    *at ^= bits;
    return was;
}
static inline int32_t atomicMin(int32_t *at, int32_t x) {
    const int32_t was = *at;
    *at = was < x ? was : x;
    return was;
}
static inline void __trap() {
    snprintf(emulator::problem, sizeof emulator::problem, "block %u: __trap()", blockIdx.x);
    emulator::pause(emulator::DONE);
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __popc(int x) { return __builtin_popcount((unsigned)x); }

#define __CUDACC__ 1
#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline, unused))
#define MF_WARM(at) ((void)(at))
#define MF_SCRATCH static uint8_t mf_scratch[48 * 1024] __attribute__((aligned(16)))

#else
#define EMULATED(kernel, ...)                                                                                          \
    if (!strcmp(name, #kernel))                                                                                        \
        emulator::body = [](void **a) { kernel(__VA_ARGS__); };

/* Runs a kernel; 0, or the message of what went wrong. */
extern "C" const char *mf_emulate(const char *name, unsigned grid, unsigned bx, unsigned by, void **args, uint64_t order) {
    using Params = MF_NAME(params);
    emulator::body = nullptr;
    emulator::arguments = args;
    emulator::order = order;
    emulator::problem[0] = 0;
#define GIVEN(i, Type) *(Type *)a[i]
    EMULATED(mf_reset, GIVEN(0, Params), GIVEN(1, mf_world), GIVEN(2, mf_rows), GIVEN(3, int32_t))
#ifndef MF_IN_PLACE
    EMULATED(mf_build, GIVEN(0, Params), GIVEN(1, mf_world))
#endif
    EMULATED(mf_step, GIVEN(0, Params), GIVEN(1, mf_world), GIVEN(2, mf_rows))
    EMULATED(mf_step_threads, GIVEN(0, Params), GIVEN(1, mf_world), GIVEN(2, mf_rows))
    EMULATED(mf_observe, GIVEN(0, Params), GIVEN(1, mf_world), GIVEN(2, mf_rows))
    if (!emulator::body)
        return "no such kernel";
    for (unsigned i = 0; i < grid; i++) {
        blockIdx = {i, 0};
        if (emulator::run_block(bx, by))
            return emulator::problem;
    }
    return nullptr;
}
#endif
