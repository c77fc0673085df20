/* robot.h: what a robot task's header may use, and what it must give.

   A task is one header over plain arrays, without MuJoCo: what steps the physics fills mf_physics and passes it in.
   With NAME standing for the task's name, the header gives

     NAME_params  plain struct, the task's options: numbers (mf_real, ranges as mf_real[2]), then switches and bodies
                  (int32_t), as well as sites and places in sensordata; its Python file (tasks/NAME.py) lists
                  them in the same order
     NAME_contact_forces  an enum's constant, 1 if the task looks at cfrc_ext: contact forces cost time

     void    NAME_before (params, physics, state)                 keep what is needed of the time before a step
     int32_t NAME_after  (params, physics, state, action, reward, info)
                                          reward and info of a step; 1: it ended the episode (not: its time limit)
     void    NAME_observe(params, physics, obs)
     void    NAME_reset  (params, physics, rng, qpos, qvel)       the start of an episode

   Operations are in NumPy's order, so that results equal Gymnasium's to the bit (compile with -ffp-contract=off:
   only what is written as fma is fused). */
#ifndef MF_ROBOT_H
#define MF_ROBOT_H

#include <math.h>
#include "philox.h"

#ifdef MF_FLOAT
typedef float mf_real; /* the rules over MuJoCo Warp's arrays (warp/world.h) */
#else
typedef double mf_real;
#endif

/* Arrays as MuJoCo's mjData has them, after frame_skip substeps and mj_rnePostConstraint. */
typedef struct {
    const mf_real *qpos, *qvel, *act;   /* [nq], [nv], [na] */
    const mf_real *ctrl;                /* [nu], as set: not clipped */
    const mf_real *qfrc_actuator;       /* [nv] */
    const mf_real *qfrc_constraint;     /* [nv] */
    const mf_real *cinert;              /* [nbody, 10] */
    const mf_real *cvel, *cfrc_ext;     /* [nbody, 6] */
    const mf_real *xpos, *xipos;        /* [nbody, 3] */
    const mf_real *xquat;               /* [nbody, 4] */
    const mf_real *site_xpos;           /* [nsite, 3] */
    const mf_real *ten_length;          /* [ntendon] */
    const mf_real *ten_velocity;        /* [ntendon] */
    const mf_real *sensordata;          /* [nsensordata] */
    const mf_real *body_mass;           /* [nbody], of the model */
    const mf_real *init_qpos, *init_qvel; /* [nq], [nv]: the model's own start */
    mf_real timestep, dt;               /* seconds of a substep, and of a step: timestep * frame_skip */
    int32_t nq, nv, nu, nbody;
    int32_t evaluation;                 /* 1: the episode is for evaluation, so that a curriculum is off */
} mf_physics;

typedef struct {
    mf_real before[8];
} mf_task_state;

/* Sum of value(i) for i in 0 … n-1 as NumPy adds contiguous arrays: pairwise, eight at a time. */
#define MF_DEFINE_SUM(NAME, TYPE, TERM)                                                                    \
    MF_FN TYPE NAME##_block(const TYPE *v, int32_t n) {                                                    \
        TYPE part[8], sum = 0;                                                                             \
        int32_t i = 0;                                                                                     \
        if (n >= 8) {                                                                                      \
            for (; i < 8; i++) part[i] = TERM(v[i]);                                                       \
            for (; i < n - n % 8; i += 8)                                                                  \
                for (int32_t k = 0; k < 8; k++) part[k] += TERM(v[i + k]);                                 \
            sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])); \
        }                                                                                                  \
        for (; i < n; i++) sum += TERM(v[i]);                                                              \
        return sum;                                                                                        \
    }                                                                                                      \
    static __attribute__((unused)) TYPE NAME(const TYPE *v, int32_t n) {                                   \
        if (n <= 128) return NAME##_block(v, n);                                                           \
        const int32_t half = n / 2 - n / 2 % 8;                                                            \
        return NAME(v, half) + NAME(v + half, n - half);                                                   \
    }
#define MF_ITSELF(x) (x)
#define MF_SQUARE(x) ((x) * (x))
MF_DEFINE_SUM(mf_sum, mf_real, MF_ITSELF)
MF_DEFINE_SUM(mf_sum_squares, mf_real, MF_SQUARE)
MF_DEFINE_SUM(mf_sum_squares_float, float, MF_SQUARE)

/* Uniform in 0 … 1 (never 1), with 53 bits; in double everywhere, because as float the greatest would be 1. */
MF_FN double mf_unit(mf_rng *rng) {
    const uint64_t top = mf_rng_next(rng) >> 5, bottom = mf_rng_next(rng) >> 6;
    return (double)((top << 26) | bottom) * 0x1p-53;
}

MF_FN mf_real mf_uniform(mf_rng *rng, mf_real low, mf_real high) { return (mf_real)(low + (high - low) * mf_unit(rng)); }

/* Standard normal (Box and Muller). */
MF_FN mf_real mf_normal(mf_rng *rng) {
    const double radius = sqrt(-2 * log(1 - mf_unit(rng)));
    return (mf_real)(radius * cos(6.283185307179586 * mf_unit(rng)));
}

#endif
