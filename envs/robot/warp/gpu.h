/* gpu.h: the kernels of one task, for NVRTC: a thread for each world. The includer has defined MF_FLOAT and MF_ENV, the
   task's name, and included the task's header. */
#ifndef MF_ROBOT_WARP_GPU_H
#define MF_ROBOT_WARP_GPU_H

#define MF_RULE_BEFORE(w, o, p, state) MF_NAME(before)((const MF_NAME(params) *)(o), p, state)
#define MF_RULE_AFTER(w, o, p, state, action, reward, info) \
    MF_NAME(after)((const MF_NAME(params) *)(o), p, state, action, reward, info)
#define MF_RULE_OBSERVE(w, o, p, obs) MF_NAME(observe)((const MF_NAME(params) *)(o), p, obs)
#define MF_RULE_RESET(w, o, p, rng, qpos, qvel) MF_NAME(reset)((const MF_NAME(params) *)(o), p, rng, qpos, qvel)
#define MF_WEIGH_SYNC() __syncwarp()
#include "world.h"

static_assert(sizeof(MF_NAME(params)) == MF_PARAMS_BYTES, "host and device disagree on the size of the options");
static_assert(sizeof(mf_robot) == MF_ROBOT_BYTES, "host and device disagree on the size of a robot's state");

#define MF_WORLD_KERNEL(NAME)                                                                                       \
    extern "C" __global__ void mf_world_##NAME##_kernel(const __grid_constant__ MF_NAME(params) o,                   \
                                                        const __grid_constant__ mf_world w,                          \
                                                        const __grid_constant__ mf_world_rows rows) {                \
        const int32_t i = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);                                         \
        if (i < w.num_envs) mf_world_##NAME(&o, &w, &rows, i);                                                      \
    }
MF_WORLD_KERNEL(first)
MF_WORLD_KERNEL(act)
MF_WORLD_KERNEL(step)
MF_WORLD_KERNEL(begin)

/* A warp for each of fields.workers worlds at a time. */
extern "C" __global__ void mf_world_weigh_kernel(const __grid_constant__ MF_NAME(params) o,
                                                 const __grid_constant__ mf_world w,
                                                 const __grid_constant__ mf_world_rows rows) {
    const int32_t lane = (int32_t)threadIdx.x % 32;
    const int32_t worker = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (worker >= w.fields.workers) return;
    float *const scratch = w.fields.scratch + worker * mf_weigh_scratch(w.nv, w.nbody);
    for (int32_t i = worker; i < w.num_envs; i += w.fields.workers) mf_world_weigh(&w, i, scratch, lane, 32);
}

#endif
