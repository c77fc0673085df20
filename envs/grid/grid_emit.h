/* grid_emit.h: the window, and tokens written one by one. */
#ifndef GRID_EMIT_H
#define GRID_EMIT_H

#include "grid_state.h"

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

#endif
