/* own_model.h: a model of which one env changes numbers: its own arrays of what differs, the others are all envs'.

   A copy by mj_copyModel would hold meshes, textures and indices too: half a megabyte for Ant, of which 3 kB differ. */
#ifndef MF_ROBOT_OWN_MODEL_H
#define MF_ROBOT_OWN_MODEL_H

#include <stdlib.h>
#include <mujoco/mjxmacro.h>
#include "faults.h"
#include "randomize.h"

/* Arrays of mjtNum that a new episode changes, and their lengths: what mf_own_model_draw writes, and what mj_setConst
   derives from masses. */
#define MF_OWN_ARRAYS(X)                          \
    X(body_mass, m->nbody)                        \
    X(body_inertia, 3 * m->nbody)                 \
    X(body_subtreemass, m->nbody)                 \
    X(body_invweight0, 2 * m->nbody)              \
    X(dof_M0, m->nv)                              \
    X(dof_invweight0, m->nv)                      \
    X(tendon_invweight0, m->ntendon)              \
    X(flexedge_invweight0, m->nflexedge)          \
    X(actuator_acc0, m->nactuator)                \
    X(cam_poscom0, 3 * m->ncam)                   \
    X(light_poscom0, 3 * m->nlight)               \
    X(geom_friction, 3 * m->ngeom)                \
    X(pair_friction, 5 * m->npair)                \
    X(actuator_gainprm, mjNGAIN * m->nactuator)   \
    X(actuator_biasprm, mjNBIAS * m->nactuator)   \
    X(actuator_forcerange, 2 * m->nactuator)

/* Move an array of the model m to to[used …] (NULL: only count), and its end to a multiple of 64 bytes. */
#define MF_TAKE(NAME, BYTES)                              \
    {                                                     \
        const size_t bytes = (BYTES);                     \
        if (to && bytes) {                                \
            memcpy(to + used, m->NAME, bytes);            \
            m->NAME = (void *)(to + used);                \
        }                                                 \
        used += (bytes + 63) / 64 * 64;                   \
    }

/* Give the model arrays of its own, at `to`: of what an episode changes. Returns their bytes. */
static size_t mf_take_own(mjModel *m, char *to) {
    size_t used = 0;
#define MF_TAKE_OWN(NAME, LENGTH) MF_TAKE(NAME, sizeof(mjtNum) * (size_t)(LENGTH))
    MF_OWN_ARRAYS(MF_TAKE_OWN)
#undef MF_TAKE_OWN
    return used;
}

/* The same of all arrays but assets, so that mj_setConst may write what it likes. */
static size_t mf_take_all(mjModel *m, char *to) {
    size_t used = 0;
    MJMODEL_POINTERS_PREAMBLE(m)
#define X(TYPE, NAME, ROWS, COLUMNS)                                                                            \
    if (strncmp(#NAME, "mesh_", 5) && strncmp(#NAME, "skin_", 5) && strncmp(#NAME, "tex_", 4) &&                \
        strcmp(#NAME, "hfield_data"))                                                                           \
        MF_TAKE(NAME, sizeof(TYPE) * (size_t)m->ROWS * (size_t)(COLUMNS))
    MJMODEL_POINTERS
#undef X
    return used;
}

/* A copy of the model with the arrays that `take` gives it, freed by `free`; NULL without memory. `base` must outlive it. */
static mjModel *mf_copy_model(const mjModel *base, size_t (*take)(mjModel *m, char *to)) {
    mjModel changed = *base;
    const size_t head = (sizeof(mjModel) + 63) / 64 * 64;
    char *block = (char *)aligned_alloc(64, head + take(&changed, NULL));
    if (!block) return NULL;
    take(&changed, block + head);
    memcpy(block, &changed, sizeof changed);
    return (mjModel *)(void *)block;
}

/* The model of one env. */
MF_INLINE mjModel *mf_own_model(const mjModel *base) { return mf_copy_model(base, mf_take_own); }

/* Numbers of an actuator's gain and bias that its force is proportional to: first … last-1. */
MF_INLINE void mf_strength_range(const mjModel *m, int32_t actuator, int32_t *first, int32_t *last) {
    const mjtNum *gain = m->actuator_gainprm + (int64_t)actuator * mjNGAIN;
    *first = 0, *last = 3; /* fixed and affine: constant, by length, by velocity */
    if (m->actuator_gaintype[actuator] != mjGAIN_MUSCLE) return;
    *first = gain[2] < 0 ? 3 : 2; /* muscle: its peak force, or the scale that this follows from */
    *last = *first + 1;
}

/* Give the model the numbers of an episode. `data`: scratch; reset it afterwards. */
static __attribute__((unused)) void mf_own_model_draw(mjModel *m, const mjModel *base, const mf_random *o,
                                                      const mf_episode *e, mjData *data) {
    if (o->masses) {
        mjModel *whole = mf_copy_model(base, mf_take_all);
        if (!whole) mju_error("no memory for the masses of an episode");
        for (int32_t body = 1; body < m->nbody; body++) {
            const float factor = mf_random_mass(o, e, body);
            whole->body_mass[body] = base->body_mass[body] * factor;
            for (int32_t k = 3 * body; k < 3 * body + 3; k++) whole->body_inertia[k] = base->body_inertia[k] * factor;
        }
        mj_setConst(whole, data);
#define MF_COPY_OWN(NAME, LENGTH) \
    if (m->NAME) memcpy(m->NAME, whole->NAME, sizeof(mjtNum) * (size_t)(LENGTH));
        MF_OWN_ARRAYS(MF_COPY_OWN)
#undef MF_COPY_OWN
        free(whole);
    }
    if (o->frictions) {
        const float factor = mf_random_friction(o, e);
        for (int64_t geom = 0; geom < m->ngeom; geom++) m->geom_friction[3 * geom] = base->geom_friction[3 * geom] * factor;
        for (int64_t pair = 0; pair < m->npair; pair++)
            for (int64_t k = 5 * pair; k < 5 * pair + 2; k++) m->pair_friction[k] = base->pair_friction[k] * factor;
    }
    for (int32_t a = 0; o->strengths && a < m->nactuator; a++) {
        const float factor = mf_random_strength(o, e, a);
        int32_t first, last;
        mf_strength_range(base, a, &first, &last);
        for (int32_t k = first; k < last; k++) {
            m->actuator_gainprm[a * mjNGAIN + k] = base->actuator_gainprm[a * mjNGAIN + k] * factor;
            m->actuator_biasprm[a * mjNBIAS + k] = base->actuator_biasprm[a * mjNBIAS + k] * factor;
        }
        for (int32_t k = 2 * a; k < 2 * a + 2; k++)
            m->actuator_forcerange[k] = base->actuator_forcerange[k] * factor;
    }
}

#endif
