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

/* Place of window cell r * 11 + c in the order (|dr|+|dc|, dr, dc). */
MF_CONST uint8_t GRID_RANK[GRID_CELLS] = {
    117, 109,  97,  81,  61,  41,  62,  82,  98, 110, 118,
    111,  99,  83,  63,  42,  25,  43,  64,  84, 100, 112,
    101,  85,  65,  44,  26,  13,  27,  45,  66,  86, 102,
     87,  67,  46,  28,  14,   5,  15,  29,  47,  68,  88,
     69,  48,  30,  16,   6,   1,   7,  17,  31,  49,  70,
     50,  32,  18,   8,   2,   0,   3,   9,  19,  33,  51,
     71,  52,  34,  20,  10,   4,  11,  21,  35,  53,  72,
     89,  73,  54,  36,  22,  12,  23,  37,  55,  74,  90,
    103,  91,  75,  56,  38,  24,  39,  57,  76,  92, 104,
    113, 105,  93,  77,  58,  40,  59,  78,  94, 106, 114,
    119, 115, 107,  95,  79,  60,  80,  96, 108, 116, 120,
};

/* Location r<<4 | c of each place in that order. */
MF_CONST uint8_t GRID_LOCATION[GRID_CELLS] = {
    0x55, 0x45, 0x54, 0x56, 0x65, 0x35, 0x44, 0x46, 0x53, 0x57, 0x64,
    0x66, 0x75, 0x25, 0x34, 0x36, 0x43, 0x47, 0x52, 0x58, 0x63, 0x67,
    0x74, 0x76, 0x85, 0x15, 0x24, 0x26, 0x33, 0x37, 0x42, 0x48, 0x51,
    0x59, 0x62, 0x68, 0x73, 0x77, 0x84, 0x86, 0x95, 0x05, 0x14, 0x16,
    0x23, 0x27, 0x32, 0x38, 0x41, 0x49, 0x50, 0x5a, 0x61, 0x69, 0x72,
    0x78, 0x83, 0x87, 0x94, 0x96, 0xa5, 0x04, 0x06, 0x13, 0x17, 0x22,
    0x28, 0x31, 0x39, 0x40, 0x4a, 0x60, 0x6a, 0x71, 0x79, 0x82, 0x88,
    0x93, 0x97, 0xa4, 0xa6, 0x03, 0x07, 0x12, 0x18, 0x21, 0x29, 0x30,
    0x3a, 0x70, 0x7a, 0x81, 0x89, 0x92, 0x98, 0xa3, 0xa7, 0x02, 0x08,
    0x11, 0x19, 0x20, 0x2a, 0x80, 0x8a, 0x91, 0x99, 0xa2, 0xa8, 0x01,
    0x09, 0x10, 0x1a, 0x90, 0x9a, 0xa1, 0xa9, 0x00, 0x0a, 0xa0, 0xaa,
};

/* Which cells of window row r are not empty: bit c. */
MF_FN uint32_t grid_window_row(const Grid *g, const GridAgent *a, int32_t r) {
    const uint32_t *word = g->bits + (a->row + r) * g->p->bit_words + (a->col >> 5);
    return (uint32_t)((word[0] | (uint64_t)word[1] << 32) >> (a->col & 31)) & ((1u << GRID_VIEW) - 1);
}

/* Feature 11: thousandths to hundredths, rounded half away from zero, 0 … 255. */
MF_FN int32_t grid_last_reward(const GridAgent *a) { return a->reward > 0 ? mf_min((a->reward + 5) / 10, 255) : 0; }

/* Feature 5 of an object: mines and generators come in three colors. */
MF_FN int32_t grid_color(int32_t type) {
    return type < GRID_GENERATOR ? type - GRID_MINE : type < GRID_ALTAR ? type - GRID_GENERATOR : 0;
}

MF_FN void grid_facing(const GridAgent *a, int32_t *dr, int32_t *dc) {
    *dr = (a->orientation == GRID_DOWN) - (a->orientation == GRID_UP);
    *dc = (a->orientation == GRID_RIGHT) - (a->orientation == GRID_LEFT);
}

/* ---- tokens ---- */

/* Where tokens go. By value, and the count of tokens is handed from call to call: a counter in memory would be
   read again after every byte written. */
typedef struct {
    uint8_t *out, *dropped; /* dropped: for tokens past the last */
    uint32_t *words;        /* or null; else tokens go there, one a word */
} GridTokens;

/* Write token number `count`; returns the new count. It stays only if `keep` is 1, else the next one takes its
   place: that spares a branch. (As words, that place is another lane's.) */
MF_FN int32_t grid_emit_if(GridTokens t, int32_t count, int32_t location, int32_t feature, int32_t value,
                           int32_t keep) {
    if (t.words) {
        if (keep && count < GRID_TOKENS)
            t.words[count] = (uint32_t)(location | feature << 8 | (value & 255) << 16);
        return count + keep;
    }
    uint8_t *token = count < GRID_TOKENS ? t.out + 3 * count : t.dropped;
    token[0] = (uint8_t)location, token[1] = (uint8_t)feature, token[2] = (uint8_t)value;
    return count + keep;
}

MF_FN int32_t grid_emit(GridTokens t, int32_t count, int32_t location, int32_t feature, int32_t value) {
    return grid_emit_if(t, count, location, feature, value, 1);
}

MF_FN int32_t grid_emit_nonzero(GridTokens t, int32_t count, int32_t location, int32_t feature, int32_t value) {
    return grid_emit_if(t, count, location, feature, value, value != 0);
}

MF_FN int32_t grid_emit_items(GridTokens t, int32_t count, int32_t location, const uint8_t *item, uint32_t items) {
    for (; items; items &= items - 1)
        count = grid_emit(t, count, location, 14 + MF_CTZ(items), item[MF_CTZ(items)]);
    return count;
}

MF_FN int32_t grid_emit_agent(GridTokens t, int32_t count, int32_t location, const GridAgent *a) {
    count = grid_emit(t, count, location, 0, GRID_AGENT);
    count = grid_emit(t, count, location, 1, a->group);
    count = grid_emit_nonzero(t, count, location, 3, a->frozen);
    count = grid_emit(t, count, location, 4, a->orientation);
    count = grid_emit_nonzero(t, count, location, 5, a->color);
    count = grid_emit_nonzero(t, count, location, 12, a->glyph);
    return grid_emit_items(t, count, location, a->item, a->cache_items);
}

MF_FN int32_t grid_emit_object(GridTokens t, int32_t count, int32_t location, const GridObject *o) {
    count = grid_emit(t, count, location, 0, o->type);
    count = grid_emit_nonzero(t, count, location, 5, grid_color(o->type));
    count = grid_emit_nonzero(t, count, location, 6, o->phase != GRID_IDLE);
    count = grid_emit_nonzero(t, count, location, 7, o->type == GRID_BLOCK);
    return grid_emit_items(t, count, location, o->item, o->cache_items);
}

/* The window's cells that are not empty, as bits by rank. */
MF_FN void grid_seen(const Grid *g, const GridAgent *a, uint64_t seen[2]) {
    seen[0] = seen[1] = 0;
    for (int32_t r = 0; r < GRID_VIEW; r += 4) { /* four rows in a word: fewer loops, fewer mispredicted ends */
        uint64_t cells = 0;
        for (int32_t i = 0; i < 4 && r + i < GRID_VIEW; i++)
            cells |= (uint64_t)grid_window_row(g, a, r + i) << (GRID_VIEW * i);
        for (; cells; cells &= cells - 1) {
            const uint32_t rank = GRID_RANK[r * GRID_VIEW + MF_CTZ64(cells)];
            seen[rank >> 6] |= (uint64_t)1 << (rank & 63);
        }
    }
}

MF_FN int32_t grid_emit_cell(const Grid *g, GridTokens t, int32_t count, int32_t location, int32_t cell) {
    if (cell == 1)
        return grid_emit(t, count, location, 0, GRID_WALL);
    if (grid_is_agent(g, cell))
        return grid_emit_agent(t, count, location, g->agents + (cell - 2));
    return grid_emit_object(t, count, location, grid_object(g, cell));
}

MF_FN int32_t grid_emit_globals(const Grid *g, GridTokens t, const GridAgent *a) {
    int32_t n = grid_emit_nonzero(t, 0, 0x55, 8, g->head->cache_completion);
    n = grid_emit_nonzero(t, n, 0x55, 9, a->last_action);
    n = grid_emit_nonzero(t, n, 0x55, 10, a->last_arg);
    n = grid_emit_nonzero(t, n, 0x55, 11, grid_last_reward(a));
    return grid_emit_nonzero(t, n, 0x55, 13, g->p->reward_items);
}

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
