/* own_model.h: a model of which one env changes numbers: its own arrays, but for those that can be large and never change.

   A copy by mj_copyModel would also hold meshes and textures: half a megabyte for Ant, a hundred times the rest. */
#ifndef MF_ROBOT_OWN_MODEL_H
#define MF_ROBOT_OWN_MODEL_H

#include <stdlib.h>
#include <mujoco/mjxmacro.h>
#include "faults.h"
#include "randomize.h"

/* Whether all models can share an array: assets alone. */
MF_INLINE int mf_shared_array(const char *name) {
    static const char *const parts[] = {"mesh_", "skin_", "tex_", "hfield_data", "oct_", "text_", "names"};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (!strncmp(name, parts[k], strlen(parts[k]))) return 1;
    return 0;
}

/* Bytes of the arrays that a model of its own has; `to`: copies them there and has the model point at them. */
MF_INLINE size_t mf_own_arrays(mjModel *m, char *to) {
    size_t used = 0;
    MJMODEL_POINTERS_PREAMBLE(m)
#undef MJ_M
#define MJ_M(n) n
#define X(TYPE, NAME, ROWS, COLUMNS)                                              \
    if (!mf_shared_array(#NAME)) {                                                \
        const size_t bytes = sizeof(TYPE) * (size_t)m->ROWS * (size_t)(COLUMNS);  \
        if (to) {                                                                 \
            memcpy(to + used, m->NAME, bytes);                                    \
            m->NAME = (TYPE *)(void *)(to + used);                                \
        }                                                                         \
        used += (bytes + 63) / 64 * 64;                                           \
    }
    MJMODEL_POINTERS
#undef X
    return used;
}

/* A copy of the model with arrays of its own, freed by `free`; NULL without memory. `base` must outlive it. */
MF_INLINE mjModel *mf_own_model(const mjModel *base) {
    mjModel changed = *base;
    const size_t head = (sizeof(mjModel) + 63) / 64 * 64;
    char *block = (char *)aligned_alloc(64, head + mf_own_arrays(&changed, NULL));
    if (!block) return NULL;
    mf_own_arrays(&changed, block + head);
    memcpy(block, &changed, sizeof changed);
    return (mjModel *)(void *)block;
}

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
        for (int32_t body = 1; body < m->nbody; body++) {
            const float factor = mf_random_mass(o, e, body);
            m->body_mass[body] = base->body_mass[body] * factor;
            for (int32_t k = 3 * body; k < 3 * body + 3; k++) m->body_inertia[k] = base->body_inertia[k] * factor;
        }
        mj_setConst(m, data);
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
