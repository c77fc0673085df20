/* weigh.h: gives a world of MuJoCo Warp its own masses, friction, strength and look (look.h), and what MuJoCo derives from masses, which
   is mj_setConst's work: masses of subtrees, and the inverse weights of constraints (invweight0).

   The inertia matrix in the model's first pose is linear in the bodies' factors: `rest` (armatures) + Σ factor · `share`.
   With L L' = that matrix and X = L^-1, each inverse weight is |X row|² of a row that masses do not change: a degree of
   freedom, a direction of a body's motion, a tendon. own_fields.py makes these arrays from MuJoCo's model.

   One world is done by `lanes` lanes together; MF_WEIGH_SYNC() makes writes of all visible to each. */
#ifndef MF_ROBOT_WEIGH_H
#define MF_ROBOT_WEIGH_H

#include "../look.h"

/* Has the same fields as `Fields` in own_fields.py. The first are Warp's arrays, [num_envs, …]; NULL where a world has
   none of its own. The others are the model's: nothing of a world's. */
typedef struct {
    float *body_mass, *body_inertia, *body_subtreemass, *body_invweight0, *dof_invweight0, *tendon_invweight0;
    float *actuator_acc0, *geom_friction, *pair_friction, *actuator_gainprm, *actuator_biasprm, *actuator_forcerange;
    const float *mass;          /* [nbody] */
    const float *inertia;       /* [nbody, 3] */
    const float *rest;          /* [nv (nv + 1) / 2]: lower triangle */
    const float *share;         /* [nbody, nv (nv + 1) / 2] */
    const float *body_rows;     /* [nbody, 6, nv] */
    const float *tendon_rows;   /* [ntendon, nv] */
    const float *actuator_rows; /* [nactuator, nv] */
    const float *friction;      /* [ngeom, 3] */
    const float *pairs;         /* [npair, 5] */
    const float *gain, *bias;   /* [nactuator, 10] */
    const float *forcerange;    /* [nactuator, 2] */
    const int32_t *parent;      /* [nbody] */
    const int32_t *sliding;     /* [nbody] 1: MuJoCo takes the body's inverse mass (body_simple 2) */
    const int32_t *dof_body;    /* [nv] */
    const int32_t *dof_first;   /* [nv] first of the degrees of freedom that share their mean weight, … */
    const int32_t *dof_count;   /* [nv] … and how many these are */
    const int32_t *scaled;      /* [nactuator, 2] first and last + 1 of the numbers of gain and bias that are scaled */
    float *scratch;             /* [workers, 2 nv² + nbody] */
    int32_t ngeom, npair, nactuator, workers;
    mf_looks looks;
} mf_fields;

/* Numbers of scratch memory for one worker. */
MF_FN int64_t mf_weigh_scratch(int32_t nv, int32_t nbody) { return 2 * (int64_t)nv * nv + nbody; }

/* |X row|², with X [nv, nv] lower triangular. */
MF_FN float mf_weigh_row(const float *X, const float *row, int32_t nv) {
    float sum = 0;
    for (int32_t i = 0; i < nv; i++) {
        float entry = 0;
        for (int32_t j = 0; j <= i; j++) entry += X[i * nv + j] * row[j];
        sum += entry * entry;
    }
    return sum;
}

/* |X' X row|: the acceleration by a unit force along row. */
MF_FN float mf_weigh_acceleration(const float *X, const float *row, int32_t nv) {
    float sum = 0;
    for (int32_t k = 0; k < nv; k++) {
        float entry = 0;
        for (int32_t i = k; i < nv; i++) {
            float inner = 0;
            for (int32_t j = 0; j <= i; j++) inner += X[i * nv + j] * row[j];
            entry += X[i * nv + k] * inner;
        }
        sum += entry * entry;
    }
    return sqrtf(sum);
}

/* X = L^-1 of the inertia matrix in the first pose, from the bodies' factors. L, X: [nv, nv]. */
MF_FN void mf_weigh_invert(const mf_fields *f, const float *factor, float *L, float *X, int32_t nv, int32_t nbody,
                           int32_t lane, int32_t lanes) {
    const int32_t size = nv * (nv + 1) / 2;
    for (int32_t row = 0; row < nv; row++)
        for (int32_t column = lane; column <= row; column += lanes) {
            const int32_t at = row * (row + 1) / 2 + column;
            float sum = f->rest[at];
            for (int32_t body = 1; body < nbody; body++) sum += factor[body] * f->share[body * size + at];
            L[row * nv + column] = sum;
        }
    MF_WEIGH_SYNC();
    for (int32_t column = 0; column < nv; column++) {
        float sum = L[column * nv + column];
        for (int32_t k = 0; k < column; k++) sum -= L[column * nv + k] * L[column * nv + k];
        const float root = sqrtf(sum > 1e-15f ? sum : 1e-15f);
        for (int32_t row = column + 1 + lane; row < nv; row += lanes) {
            float entry = L[row * nv + column];
            for (int32_t k = 0; k < column; k++) entry -= L[row * nv + k] * L[column * nv + k];
            L[row * nv + column] = entry / root;
        }
        MF_WEIGH_SYNC();
        if (lane == 0) L[column * nv + column] = root;
        MF_WEIGH_SYNC();
    }
    for (int32_t column = lane; column < nv; column += lanes)
        for (int32_t row = column; row < nv; row++) {
            float sum = row == column;
            for (int32_t k = column; k < row; k++) sum -= L[row * nv + k] * X[k * nv + column];
            X[row * nv + column] = sum / L[row * nv + row];
        }
    MF_WEIGH_SYNC();
}

/* Masses of world i and what follows from them. */
MF_FN void mf_weigh_masses(const mf_fields *f, const mf_random *o, const mf_episode *e, int64_t i, float *scratch, int32_t nv,
                           int32_t nbody, int32_t ntendon, int32_t lane, int32_t lanes) {
    float *const L = scratch, *const X = L + nv * nv, *const factor = X + nv * nv;
    float *const mass = f->body_mass + i * nbody, *const inertia = f->body_inertia + 3 * i * nbody;
    float *const subtree = f->body_subtreemass + i * nbody;
    for (int32_t body = lane; body < nbody; body += lanes) {
        factor[body] = body ? mf_random_mass(o, e, body) : 1;
        mass[body] = subtree[body] = f->mass[body] * factor[body];
        for (int32_t k = 3 * body; k < 3 * body + 3; k++) inertia[k] = f->inertia[k] * factor[body];
    }
    MF_WEIGH_SYNC();
    for (int32_t body = nbody - 1; lane == 0 && body > 0; body--) subtree[f->parent[body]] += subtree[body];
    mf_weigh_invert(f, factor, L, X, nv, nbody, lane, lanes);
    for (int32_t dof = lane; dof < nv; dof += lanes) {
        float sum = 0;
        for (int32_t d = f->dof_first[dof]; d < f->dof_first[dof] + f->dof_count[dof]; d++)
            for (int32_t k = d; k < nv; k++) sum += X[k * nv + d] * X[k * nv + d];
        const int32_t body = f->dof_body[dof];
        f->dof_invweight0[i * nv + dof] = f->sliding[body] ? 1 / mass[body] : sum / (float)f->dof_count[dof];
    }
    for (int32_t half = lane; half < 2 * nbody; half += lanes) {
        float sum = 0;
        for (int32_t k = 3 * half; k < 3 * half + 3; k++) sum += mf_weigh_row(X, f->body_rows + k * nv, nv);
        f->body_invweight0[2 * i * nbody + half] =
            !f->sliding[half / 2] ? sum / 3 : half % 2 ? 0 : 1 / mass[half / 2];
    }
    for (int32_t tendon = lane; tendon < ntendon; tendon += lanes)
        f->tendon_invweight0[i * ntendon + tendon] = mf_weigh_row(X, f->tendon_rows + tendon * nv, nv);
    for (int32_t a = lane; a < f->nactuator; a += lanes)
        f->actuator_acc0[i * f->nactuator + a] = mf_weigh_acceleration(X, f->actuator_rows + a * nv, nv);
}

/* All that world i's model has of its own, for an episode. */
MF_FN void mf_weigh(const mf_fields *f, const mf_random *o, const mf_episode *e, int64_t i, float *scratch, int32_t nv,
                    int32_t nbody, int32_t ntendon, int32_t lane, int32_t lanes) {
    if (o->masses) mf_weigh_masses(f, o, e, i, scratch, nv, nbody, ntendon, lane, lanes);
    if (o->frictions) {
        const float factor = mf_random_friction(o, e);
        for (int32_t k = lane; k < 3 * f->ngeom; k += lanes)
            f->geom_friction[3 * i * f->ngeom + k] = f->friction[k] * (k % 3 ? 1 : factor);
        for (int32_t k = lane; k < 5 * f->npair; k += lanes)
            f->pair_friction[5 * i * f->npair + k] = f->pairs[k] * (k % 5 > 1 ? 1 : factor);
    }
    for (int32_t a = lane; o->strengths && a < f->nactuator; a += lanes) {
        const float factor = mf_random_strength(o, e, a);
        const int64_t at = i * f->nactuator + a;
        for (int32_t k = 0; k < 10; k++) {
            const float by = k >= f->scaled[2 * a] && k < f->scaled[2 * a + 1] ? factor : 1;
            f->actuator_gainprm[10 * at + k] = f->gain[10 * a + k] * by;
            f->actuator_biasprm[10 * at + k] = f->bias[10 * a + k] * by;
        }
        for (int32_t k = 0; k < 2; k++) f->actuator_forcerange[2 * at + k] = f->forcerange[2 * a + k] * factor;
    }
    if (o->looks) mf_look_draw(&f->looks, o, e, i, lane, lanes);
    MF_WEIGH_SYNC();
}

#endif
