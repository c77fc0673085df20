/* contract.h: what a rules header may use, and what it must give.

   A rules header (envs/grid/grid_rules.h is the first) holds all rules of one environment, written in the
   common subset of C and CUDA. It includes nothing but this file, philox.h and its own parts: no libc, no
   allocation, no recursion, no IO. shell.h turns it into batches for the CPU; the GPU shell compiles the same
   file with NVRTC (`-fmad=false`), and the two give the same bits.

   With ENV standing for the environment's name, the header gives

     ENV_params          plain struct: the configuration and all that follows from it; constant while running
     ENV_action          typedef: type of one number of an action row (int32_t or float)
     ENV_priorities, ENV_action_width, ENV_stats      enumerators

     int64_t ENV_state_size(const ENV_params *)       bytes of one env's state, a multiple of 64
     int32_t ENV_num_agents(const ENV_params *)
     int32_t ENV_obs_size(const ENV_params *)         bytes of one agent's observation

   and for one env, `state` being its bytes (64-byte aligned; all zero before the first reset):

     void    ENV_reset  (params, state, seed, env, start_step)
                        a new episode; `env` is the global id. Counts as a step of the env's lifetime.
     int32_t ENV_pending(params, state)               1: the episode has ended, the next call must reset
     void    ENV_begin  (params, state, seed, env)    clear rewards, count the step, due events, draw the order
     void    ENV_act    (params, state, priority, turn, actions)
                        one agent's turn; called for priority = ENV_priorities-1 … 0 and turn = 0 … agents-1.
                        actions: [agents, ENV_action_width]
     void    ENV_finish (params, state, reward, terminal, truncation, mask, stats)
                        rewards float [agents]; flags uint8 [agents]; stats float [agents, ENV_stats], written
                        where terminal or truncation is set. mask 0 marks a row that carries a final observation.
     void    ENV_observe(params, state, agent, out, lane, lanes)
                        writes this lane's share of the agent's observation; lanes 0 … lanes-1 together write
                        every byte. The CPU passes (0, 1), the GPU the threads of a warp.  */
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

/* MF_FN begins each function, MF_CONST each table. MF_COPY and MF_FILL become plain loads and stores where
   the size is a constant. MF_CTZ, MF_CTZ64: index of the lowest set bit
   of a non-zero uint32_t, uint64_t. */
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MF_FN static __device__ __forceinline__
#define MF_CONST static __device__ const
#define MF_COPY(to, from, bytes) memcpy((to), (from), (bytes))
#define MF_FILL(to, value, bytes) memset((to), (value), (bytes))
#define MF_CTZ(x) (__ffs((int)(x)) - 1)
#define MF_CTZ64(x) (__ffsll((long long)(x)) - 1)
#else
#define MF_FN static inline __attribute__((unused, always_inline))
#define MF_CONST static const __attribute__((unused))
#define MF_COPY(to, from, bytes) __builtin_memcpy((to), (from), (bytes))
#define MF_FILL(to, value, bytes) __builtin_memset((to), (value), (bytes))
#define MF_CTZ(x) __builtin_ctz(x)
#define MF_CTZ64(x) __builtin_ctzll(x)
#endif

MF_FN int32_t mf_min(int32_t a, int32_t b) { return a < b ? a : b; }

#endif
