/* grid_observe.h: what an agent sees: an 11×11 window centred on it, never rotated; window cell (r, c), the
   agent at (5, 5). Three forms:

   tokens  u8[200, 3]: (location, feature, value); location r<<4 | c. First the centre's globals 8, 9, 10, 11,
           13, then cells by (|dr|+|dc|, dr, dc), each cell's features by id. Value 0 is left out, except of type,
           and of an agent's group and orientation. Unused: 255, 255, 255. What is past 200 is dropped.
   dense   u8[11, 11, 24]: channel f holds feature f, channel 0 type + 1 (0: nothing there).
   compact u8[387]: cells [11, 11, 3], then own [24].
             cell 0  type + 1
                  1  agent: 1 + orientation + 4 (frozen) + 8 min(group, 15); converter: 1 if busy
                  2  agent: min(15, all items) + 16 min(15, lasers)
                     converter: min(15, what its recipe gives) + 16 min(15, what it takes and does not give)
             own 0–9 items, 10 orientation, 11 frozen, 12 group, 13 color, 14 glyph, 15 last action, 16 its
                 argument, 17 last reward (feature 11), 18 completion (8), 19 rewarded items (13),
                 20–22 the bytes of the faced cell, 23 zero

   Features: 0 type, 1 group, 3 frozen, 4 orientation, 5 color, 6 busy, 7 swappable, 8 completion, 9 last action,
   10 its argument, 11 last reward x 100, 12 glyph, 13 rewarded items (bit 7-i for item i), 14+i items. */
#ifndef GRID_OBSERVE_H
#define GRID_OBSERVE_H

#include "grid_state.h"

enum { GRID_TOKENS = 200, GRID_CELLS = GRID_VIEW * GRID_VIEW };

#include "grid_emit.h"

#if defined(__CUDACC__) || defined(__HIPCC__)
#include "grid_tokens.h"
#endif

MF_FN void grid_observe_tokens(const Grid *g, const GridAgent *a, uint8_t *out, int32_t lane, int32_t lanes) {
#if defined(__CUDACC__) || defined(__HIPCC__)
    grid_share_tokens(g, a, out, lane);
    (void)lanes;
#else
    uint8_t dropped[3];
    const GridTokens t = {out, dropped, 0};
    const int32_t corner = (a->row - GRID_PAD) * g->c->width + a->col - GRID_PAD; /* may lie off the map */
    uint64_t seen[2];
    (void)lane, (void)lanes;
    /* in pieces that become vector stores: a whole one becomes `rep stos`, slow to start */
    for (int32_t i = 0; i < 3 * GRID_TOKENS; i += 120)
        MF_FILL(out + i, 255, 120);
    int32_t n = grid_emit_globals(g, t, a);
    grid_seen(g, a, seen);
    for (int32_t word = 0; word < 2; word++)
        for (uint64_t set = seen[word]; set; set &= set - 1) {
            const int32_t location = GRID_LOCATION[64 * word + MF_CTZ64(set)];
            n = grid_emit_cell(g, t, n, location, g->cells[corner + (location >> 4) * g->c->width + (location & 15)]);
        }
    if (n < GRID_TOKENS) /* what was not kept */
        grid_emit(t, n, 255, 255, 255);
#endif
}

/* ---- dense ---- */

MF_FN void grid_write_cell(const Grid *g, uint8_t *out, int32_t cell) {
    if (cell == 1) {
        out[0] = GRID_WALL + 1;
    } else if (grid_is_agent(g, cell)) {
        const GridAgent *a = g->agents + (cell - 2);
        out[0] = GRID_AGENT + 1, out[1] = a->group, out[3] = a->frozen, out[4] = a->orientation;
        out[5] = a->color, out[12] = a->glyph;
        MF_COPY(out + 14, a->item, GRID_ITEMS);
    } else {
        const GridObject *o = grid_object(g, cell);
        out[0] = (uint8_t)(o->type + 1), out[5] = (uint8_t)grid_color(o->type);
        out[6] = o->phase != GRID_IDLE, out[7] = o->type == GRID_BLOCK;
        MF_COPY(out + 14, o->item, GRID_ITEMS);
    }
}

MF_FN void grid_write_own(const Grid *g, const GridAgent *a, uint8_t *out) {
    out[8] = (uint8_t)g->head->cache_completion, out[9] = a->last_action, out[10] = a->last_arg;
    out[11] = (uint8_t)grid_last_reward(a), out[13] = (uint8_t)g->p->reward_items;
}

/* Rows of the window are one lane's work; with many lanes, cells: their 24 bytes are put together in registers and
   written as three words. */
MF_FN void grid_observe_dense(const Grid *g, const GridAgent *a, uint8_t *out, int32_t lane, int32_t lanes) {
    if (lanes == 1) {
        for (int32_t r = 0; r < GRID_VIEW; r++) {
            uint8_t *row_out = out + r * GRID_VIEW * 24;
            const int32_t left = (a->row + r - GRID_PAD) * g->c->width + a->col - GRID_PAD; /* may lie off the map */
            MF_FILL(row_out, 0, GRID_VIEW * 24);
            for (uint32_t row = grid_window_row(g, a, r); row; row &= row - 1)
                grid_write_cell(g, row_out + 24 * MF_CTZ(row), g->cells[left + MF_CTZ(row)]);
        }
        grid_write_own(g, a, out + 24 * (GRID_CELLS / 2));
        return;
    }
    for (int32_t i = lane; i < GRID_CELLS; i += lanes) {
        const int32_t r = i / GRID_VIEW, c = i % GRID_VIEW;
        union {
            uint64_t word[3];
            uint8_t byte[24];
        } cell = {{0, 0, 0}};
        if (grid_window_row(g, a, r) >> c & 1)
            grid_write_cell(g, cell.byte, *grid_cell(g, a->row + r - GRID_PAD, a->col + c - GRID_PAD));
        if (i == GRID_CELLS / 2)
            grid_write_own(g, a, cell.byte);
        for (int32_t w = 0; w < 3; w++)
            ((uint64_t *)out)[3 * i + w] = cell.word[w];
    }
}

/* ---- compact ---- */

/* The plane's bytes of the cell that the agent faces. */
MF_FN const uint8_t *grid_faced_cell(const Grid *g, const GridAgent *a) {
    int32_t dr, dc;
    grid_facing(a, &dr, &dc);
    return grid_plane(g, a->row + dr, a->col + dc);
}

enum { GRID_ROW_BYTES = GRID_VIEW * 3, GRID_OWN_AT = GRID_CELLS * 3 };

/* Byte i of own, by one read without a branch: that of any other i where the byte is a number. */
MF_FN uint8_t grid_own_byte(const Grid *g, const GridAgent *a, int32_t i) {
    const int32_t reward = grid_last_reward(a), completion = g->head->cache_completion;
    const uint8_t byte = *(i < 17 ? (const uint8_t *)a + i : grid_faced_cell(g, a) + (i > 20 ? mf_min(i - 20, 2) : 0));
    return (uint8_t)(i == 17 ? reward : i == 18 ? completion : i == 19 ? g->p->reward_items : i < 23 ? byte : 0);
}

/* One lane copies rows. Many (24 or more) write bytes beside each other's; each reads all of its own before it writes,
   as the compiler must think that a write changes what is read next. */
MF_FN void grid_observe_compact(const Grid *g, const GridAgent *a, uint8_t *out, int32_t lane, int32_t lanes) {
    enum { AT_ONCE = (GRID_OWN_AT + 31) / 32 };
    const uint8_t *window = g->plane + a->row * g->p->plane_stride + 3 * a->col;
    if (lanes == 1) {
        uint8_t *own = out + GRID_OWN_AT;
        for (int32_t r = 0; r < GRID_VIEW; r++)
            MF_COPY(out + r * GRID_ROW_BYTES, window + r * g->p->plane_stride, GRID_ROW_BYTES);
        MF_COPY(own, a, 17);
        own[17] = (uint8_t)grid_last_reward(a);
        own[18] = (uint8_t)g->head->cache_completion;
        own[19] = (uint8_t)g->p->reward_items;
        MF_COPY(own + 20, grid_faced_cell(g, a), 3);
        own[23] = 0;
        return;
    }
    const uint8_t own = grid_own_byte(g, a, lane);
    for (int32_t first = lane; first < GRID_OWN_AT; first += AT_ONCE * lanes) {
        uint8_t byte[AT_ONCE];
        MF_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++) {
            const int32_t i = mf_min(first + k * lanes, GRID_OWN_AT - 1); /* no branch round a read */
            byte[k] = window[i / GRID_ROW_BYTES * g->p->plane_stride + i % GRID_ROW_BYTES];
        }
        MF_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++)
            if (first + k * lanes < GRID_OWN_AT)
                out[first + k * lanes] = byte[k];
    }
    if (lane < 24)
        out[GRID_OWN_AT + lane] = own;
}

MF_FN void grid_observe(const grid_params *p, uint8_t *state, int32_t agent, uint8_t *out, int32_t lane,
                        int32_t lanes) {
    const Grid g = grid_open(p, state);
    const GridAgent *a = g.agents + agent;
    if (GRID_ONLY_OBSERVATION(g.c) == GRID_OBS_COMPACT)
        grid_observe_compact(&g, a, out, lane, lanes);
    else if (GRID_ONLY_OBSERVATION(g.c) == GRID_OBS_TOKENS)
        grid_observe_tokens(&g, a, out, lane, lanes);
    else
        grid_observe_dense(&g, a, out, lane, lanes);
}

#endif
