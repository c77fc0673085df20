/* look.h: how a robot and its surroundings look in an episode: colours, lights and cameras beside those of the model.

   Only pictures differ by it. CPU (physics.h) and GPU (warp/weigh.h) write by this file into arrays of float, one after the
   other for each env; the streams of its draws are apart from those of randomize.h, and every number has its own. */
#ifndef MF_ROBOT_LOOK_H
#define MF_ROBOT_LOOK_H

#include "randomize.h"

/* Kinds of draws, of streams from MF_LOOKS on: the others' are smaller. */
enum { MF_COLOR, MF_LIGHT, MF_LIGHT_TURN, MF_CAMERA, MF_CAMERA_TURN };
#define MF_LOOKS 0x80000000u

/* Has the same fields as `LookField` in looks.py: an array of MuJoCo's model. */
typedef struct {
    const float *base; /* [length] as in the model */
    float *out;        /* of the first env; NULL: no env has its own */
    int64_t stride;    /* floats from one env's to the next's */
} mf_look_field;

/* Has the same fields as `Looks` in looks.py. */
typedef struct {
    mf_look_field geom_rgba, mat_rgba;
    mf_look_field light_ambient, light_diffuse, light_specular, light_dir, light_dir0;
    mf_look_field cam_pos, cam_pos0, cam_poscom0, cam_quat, cam_mat0;
    const int32_t *matid; /* [ngeom] each geom's material; -1: none */
    int32_t ngeom, nmat, nlight, ncam;
} mf_looks;

/* 0 … 1 (never 1). */
MF_FN float mf_look_unit(const mf_episode *e, int32_t kind, int32_t index) {
    const uint32_t key[2] = {(uint32_t)e->seed, (uint32_t)(e->seed >> 32)};
    const uint32_t counter[4] = {e->env, e->episode, MF_LOOKS + (uint32_t)kind, (uint32_t)index >> 2};
    uint32_t word[4];
    mf_philox(key, counter, word);
    return mf_random_unit(word[index & 3]);
}

MF_FN float mf_look_factor(const mf_episode *e, int32_t kind, const float range[2], int32_t index) {
    return fmaf(range[1] - range[0], mf_look_unit(e, kind, index), range[0]);
}

/* -most … most. */
MF_FN float mf_look_within(const mf_episode *e, int32_t kind, float most, int32_t index) {
    return fmaf(2 * most, mf_look_unit(e, kind, index), -most);
}

/* q = a turn by at most `most` radians about any axis. */
MF_FN void mf_look_turn(const mf_episode *e, int32_t kind, float most, int32_t index, float q[4]) {
    float sum = 1;
    q[0] = 1;
    for (int32_t k = 0; k < 3; k++) { /* a cube in the ball of that radius; half angles */
        q[1 + k] = mf_look_within(e, kind, 0.288675135f * most, 3 * index + k);
        sum += q[1 + k] * q[1 + k];
    }
    for (int32_t k = 0; k < 4; k++) q[k] /= sqrtf(sum);
}

/* out = v turned by q, or back by it if sign is -1. */
MF_FN void mf_look_turned(const float q[4], float sign, const float *v, float *out) {
    const float x = sign * q[1], y = sign * q[2], z = sign * q[3];
    const float tx = 2 * (y * v[2] - z * v[1]), ty = 2 * (z * v[0] - x * v[2]), tz = 2 * (x * v[1] - y * v[0]);
    out[0] = v[0] + q[0] * tx + (y * tz - z * ty);
    out[1] = v[1] + q[0] * ty + (z * tx - x * tz);
    out[2] = v[2] + q[0] * tz + (x * ty - y * tx);
}

/* Colours of n geoms or materials; each is number first … of those that are drawn. matid: of geoms; NULL for materials.
   Renderers take a geom's material's colour where its own is the default, so that this stays as it is. */
MF_FN void mf_look_colors(const mf_look_field *f, const int32_t *matid, const mf_random *o, const mf_episode *e, int64_t i,
                          int32_t first, int32_t n, int32_t lane, int32_t lanes) {
    float *const out = f->out + i * f->stride;
    for (int32_t k = lane; f->out && k < 4 * n; k += lanes) {
        const float *rgba = f->base + k / 4 * 4;
        const int32_t unset = matid && matid[k / 4] >= 0 && rgba[0] == 0.5f && rgba[1] == 0.5f && rgba[2] == 0.5f && rgba[3] == 1;
        const float color = f->base[k] * mf_look_factor(e, MF_COLOR, o->color, 4 * first + k);
        out[k] = k % 4 == 3 || unset ? f->base[k] : color < 1 ? color : 1;
    }
}

MF_FN void mf_look_lights(const mf_look_field *f, const mf_random *o, const mf_episode *e, int64_t i, int32_t n, int32_t lane,
                          int32_t lanes) {
    float *const out = f->out + i * f->stride;
    for (int32_t k = lane; f->out && k < 3 * n; k += lanes)
        out[k] = f->base[k] * mf_look_factor(e, MF_LIGHT, o->light, k / 3);
}

MF_FN void mf_look_directions(const mf_look_field *f, const mf_random *o, const mf_episode *e, int64_t i, int32_t n,
                              int32_t lane, int32_t lanes) {
    float *const out = f->out + i * f->stride;
    for (int32_t k = lane; f->out && k < n; k += lanes) {
        float turn[4];
        mf_look_turn(e, MF_LIGHT_TURN, o->light_turn, k, turn);
        mf_look_turned(turn, 1, f->base + 3 * k, out + 3 * k);
    }
}

MF_FN void mf_look_places(const mf_look_field *f, const mf_random *o, const mf_episode *e, int64_t i, int32_t n, int32_t lane,
                          int32_t lanes) {
    float *const out = f->out + i * f->stride;
    for (int32_t k = lane; f->out && k < 3 * n; k += lanes)
        out[k] = f->base[k] + mf_look_within(e, MF_CAMERA, o->camera, k);
}

/* Cameras turned in their own frames: their quaternion in the body's frame, and their matrix [3, 3] in the world's. */
MF_FN void mf_look_cameras(const mf_looks *f, const mf_random *o, const mf_episode *e, int64_t i, int32_t lane, int32_t lanes) {
    for (int32_t k = lane; k < f->ncam; k += lanes) {
        float t[4];
        mf_look_turn(e, MF_CAMERA_TURN, o->camera_turn, k, t);
        if (f->cam_quat.out) {
            const float *q = f->cam_quat.base + 4 * k;
            float *const out = f->cam_quat.out + i * f->cam_quat.stride + 4 * k;
            out[0] = q[0] * t[0] - q[1] * t[1] - q[2] * t[2] - q[3] * t[3];
            out[1] = q[0] * t[1] + q[1] * t[0] + q[2] * t[3] - q[3] * t[2];
            out[2] = q[0] * t[2] - q[1] * t[3] + q[2] * t[0] + q[3] * t[1];
            out[3] = q[0] * t[3] + q[1] * t[2] - q[2] * t[1] + q[3] * t[0];
        }
        if (f->cam_mat0.out)
            for (int32_t row = 9 * k; row < 9 * k + 9; row += 3)
                mf_look_turned(t, -1, f->cam_mat0.base + row, f->cam_mat0.out + i * f->cam_mat0.stride + row);
    }
}

/* All that env i has of its own, for an episode. */
MF_FN void mf_look_draw(const mf_looks *f, const mf_random *o, const mf_episode *e, int64_t i, int32_t lane, int32_t lanes) {
    mf_look_colors(&f->geom_rgba, f->matid, o, e, i, 0, f->ngeom, lane, lanes);
    mf_look_colors(&f->mat_rgba, 0, o, e, i, f->ngeom, f->nmat, lane, lanes);
    mf_look_lights(&f->light_ambient, o, e, i, f->nlight, lane, lanes);
    mf_look_lights(&f->light_diffuse, o, e, i, f->nlight, lane, lanes);
    mf_look_lights(&f->light_specular, o, e, i, f->nlight, lane, lanes);
    mf_look_directions(&f->light_dir, o, e, i, f->nlight, lane, lanes);
    mf_look_directions(&f->light_dir0, o, e, i, f->nlight, lane, lanes);
    mf_look_places(&f->cam_pos, o, e, i, f->ncam, lane, lanes);
    mf_look_places(&f->cam_pos0, o, e, i, f->ncam, lane, lanes);
    mf_look_places(&f->cam_poscom0, o, e, i, f->ncam, lane, lanes);
    if (f->cam_quat.out || f->cam_mat0.out) mf_look_cameras(f, o, e, i, lane, lanes);
}

#endif
