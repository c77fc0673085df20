/* contract.h: defines what a rules header may use, and what it must define.

   A rules header (e.g. envs/grid/grid_rules.h) contains all rules of one environment, written in the common subset of
   C and CUDA. It includes only this file, philox.h and its own parts: no libc, no allocation, no recursion, no IO.
   shell.h turns it into batches for the CPU, gpu_shell.h into kernels (NVRTC, `--fmad=false`); both give the same bits.

   With ENV for the environment's name, the header must define

     ENV_params          plain struct: the configuration and all values derived from it; constant while running
     ENV_action          typedef: type of one number of an action row (int32_t or float)
     ENV_priorities, ENV_action_width, ENV_stats      enumerators

     int64_t ENV_state_size(const ENV_params *)       bytes of one env's state, a multiple of 64
     int32_t ENV_num_agents(const ENV_params *)
     int32_t ENV_obs_size(const ENV_params *)         bytes of one agent's observation

   and for one env, whose state is the bytes `state` (64-byte aligned; all zero before the first reset):

     void    ENV_reset  (params, state, seed, env, start_step, lane, lanes)
                        makes a new episode with `lanes` lanes together (see below); `env` is the global id.
                        Counts as a step of the env's lifetime. The episode depends on seed, env and the episode's
                        number only; of earlier steps only their number is kept.
     void    ENV_renew  (params, state, next, lane, lanes)
                        does the same by copying `next` and correcting that number. ENV_reset has made `next` from a
                        copy of the state, taken at any time during the episode that has now ended.
     int32_t ENV_pending(params, state)               1: the episode has ended, the next call must reset
     void    ENV_begin  (params, state, seed, env)    clears rewards, counts the step, runs due events, draws the order
     void    ENV_act    (params, state, priority, turn, actions)
                        runs one agent's turn; called for priority = ENV_priorities-1 … 0 and turn = 0 … agents-1.
                        actions: [agents, ENV_action_width]
     void    ENV_finish (params, state, reward, terminal, truncation, mask, stats)
                        writes rewards float [agents]; flags uint8 [agents]; stats float [agents, ENV_stats], where
                        terminal or truncation is set. mask 0 marks a row with a final observation.
     void    ENV_observe(params, state, agent, out, lane, lanes)
                        writes this lane's share of the agent's observation; lanes 0 … lanes-1 together write
                        every byte. `out` is aligned to 8 bytes where obs_size is a multiple of 8.

   and it may define, for the GPU only and together with MF_ADVANCE,

     void    ENV_advance(params, state, seed, env, actions, reward, terminal, truncation, mask, stats, lane, lanes)
                        does the work of ENV_begin, ENV_act for all turns and ENV_finish with the lanes of a warp

   Rules that do not share work, with MF_ONE_LANE, get (0, 1) on the GPU as well, and their ENV_renew is not used.

   Lanes: the CPU passes (0, 1), the GPU the 32 threads of a warp, which run the same code in parallel. In ENV_reset all
   lanes draw the same numbers and keep the same counts, and share the writes to the state. MF_LANES_SYNC() must
   separate a write from a read of it in another lane. Every lane must reach every MF_LANES_ macro, also in
   ENV_observe.  */
#ifndef MF_CONTRACT_H
#define MF_CONTRACT_H

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* MF_FN begins each function, MF_CONST each table. MF_COPY and MF_FILL become plain loads and stores if the size is a
   constant. MF_CTZ, MF_CTZ64: index of the lowest set bit of a non-zero uint32_t, uint64_t. MF_POPCOUNT: number of set
   bits. MF_UNROLL: unrolls the following loop on the GPU.

     MF_LANES_SYNC()      makes earlier writes of all lanes visible to every lane
     MF_LANES_VOTE(flag)  bit i is set if the flag of lane i is not 0
     MF_LANES_MIN(x)      minimum of the int32_t of all lanes
     MF_LANES_SUM(x, lane, total)   sum of the int32_t of all lower lanes; *total: sum over all lanes
     MF_LANES_TAKE(x, from)         the int32_t x of lane `from`
     MF_LANES_SCRATCH()   memory shared by the lanes, on the GPU only: MF_LANES_BYTES (set by the host), aligned to 16;
                          0 where the host sets none

   Atomic updates of one word by several lanes: MF_TOGGLE(at, bits) flips bits of a uint32_t; MF_LOWER(at, x) sets an
   int32_t to the minimum of its value and x.  */
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MF_FN static __device__ __forceinline__
#define MF_CONST static __device__ const
#define MF_COPY(to, from, bytes) memcpy((to), (from), (bytes))
#define MF_FILL(to, value, bytes) memset((to), (value), (bytes))
#define MF_CTZ(x) (__ffs((int)(x)) - 1)
#define MF_CTZ64(x) (__ffsll((long long)(x)) - 1)
#define MF_POPCOUNT(x) __popc((int)(x))
#define MF_UNROLL _Pragma("unroll")
#define MF_TOGGLE(at, bits) ((void)atomicXor((at), (bits)))
#define MF_LOWER(at, x) ((void)atomicMin((at), (x)))
#ifndef MF_SCRATCH
#define MF_SCRATCH extern __shared__ __align__(16) uint8_t mf_scratch[]
#endif
#else
#define MF_FN static inline __attribute__((unused, always_inline))
#define MF_CONST static const __attribute__((unused))
#define MF_COPY(to, from, bytes) __builtin_memcpy((to), (from), (bytes))
#define MF_FILL(to, value, bytes) __builtin_memset((to), (value), (bytes))
#define MF_CTZ(x) __builtin_ctz(x)
#define MF_CTZ64(x) __builtin_ctzll(x)
#define MF_POPCOUNT(x) __builtin_popcount(x)
#define MF_UNROLL
#define MF_TOGGLE(at, bits) ((void)(*(at) ^= (bits)))
#define MF_LOWER(at, x) ((void)(*(at) = mf_min(*(at), (x))))
#endif

#if (defined(__CUDACC__) || defined(__HIPCC__)) && !defined(MF_ONE_LANE)
#define MF_LANES_SYNC() __syncwarp()
#define MF_LANES_VOTE(flag) __ballot_sync(0xffffffffu, (flag) != 0)
#define MF_LANES_MIN(x) mf_lanes_min(x)
#define MF_LANES_SUM(x, lane, total) mf_lanes_sum(x, lane, total)
#define MF_LANES_TAKE(x, from) __shfl_sync(0xffffffffu, x, from)
#else
#define MF_LANES_SYNC() ((void)0)
#define MF_LANES_VOTE(flag) ((uint32_t)((flag) != 0))
#define MF_LANES_MIN(x) (x)
#define MF_LANES_SUM(x, lane, total) (*(total) = (x), 0)
#define MF_LANES_TAKE(x, from) (x)
#endif
#if (defined(__CUDACC__) || defined(__HIPCC__)) && defined(MF_LANES_BYTES)
#define MF_LANES_SCRATCH() mf_lanes_scratch()
#else
#define MF_LANES_SCRATCH() ((uint8_t *)0)
#endif

/* For the shells: MF_NAME(reset) is grid_reset if MF_ENV is grid. */
#define MF_JOIN_(a, b) a##_##b
#define MF_JOIN(a, b) MF_JOIN_(a, b)
#define MF_NAME(name) MF_JOIN(MF_ENV, name)

MF_FN int32_t mf_min(int32_t a, int32_t b) { return a < b ? a : b; }

#if (defined(__CUDACC__) || defined(__HIPCC__)) && !defined(MF_ONE_LANE)
MF_FN int32_t mf_lanes_min(int32_t x) {
    for (int32_t far = 16; far > 0; far /= 2)
        x = mf_min(x, __shfl_xor_sync(0xffffffffu, x, far));
    return x;
}

/* Groups of 1, 2, 4 … lanes exchange their sums with the neighbouring group. */
MF_FN int32_t mf_lanes_sum(int32_t x, int32_t lane, int32_t *total) {
    int32_t below = 0;
    for (int32_t far = 1; far < 32; far *= 2) {
        const int32_t theirs = __shfl_xor_sync(0xffffffffu, x, far);
        below += lane & far ? theirs : 0;
        x += theirs;
    }
    *total = x;
    return below;
}
#endif

#if (defined(__CUDACC__) || defined(__HIPCC__)) && defined(MF_LANES_BYTES)
MF_FN uint8_t *mf_lanes_scratch(void) {
    MF_SCRATCH;
    return mf_scratch + threadIdx.y * MF_LANES_BYTES;
}
#endif

/* Returns how many lanes below `lane` have their bit set in a vote. */
MF_FN int32_t mf_lanes_before(uint32_t vote, int32_t lane) { return MF_POPCOUNT(vote & ((1u << lane) - 1u)); }

/* Zeroes bytes from … to-1 of `at`; all three are multiples of 8. */
MF_FN void mf_zero(uint8_t *at, int64_t from, int64_t to, int32_t lane, int32_t lanes) {
    if (lanes == 1) {
        MF_FILL(at + from, 0, (uint64_t)(to - from));
        return;
    }
    for (int64_t i = from + 8 * lane; i < to; i += 8 * lanes)
        *(uint64_t *)(at + i) = 0;
}

/* Copies `bytes` bytes between regions that do not overlap; size and addresses are multiples of 16. */
typedef struct {
    uint64_t low, high;
} __attribute__((aligned(16))) mf_sixteen;
enum { MF_COPY_AHEAD = 4 };
MF_FN void mf_copy(uint8_t *to, const uint8_t *from, int64_t bytes, int32_t lane, int32_t lanes) {
    const int32_t count = (int32_t)(bytes / 16);
    for (int32_t first = lane; first < count; first += MF_COPY_AHEAD * lanes) {
        mf_sixteen word[MF_COPY_AHEAD]; /* all are read before one is written, to hide the latency of reads */
        MF_UNROLL
        for (int32_t k = 0; k < MF_COPY_AHEAD; k++)
            word[k] = ((const mf_sixteen *)from)[mf_min(first + k * lanes, count - 1)];
        MF_UNROLL
        for (int32_t k = 0; k < MF_COPY_AHEAD; k++)
            if (first + k * lanes < count)
                ((mf_sixteen *)to)[first + k * lanes] = word[k];
    }
}

#endif
