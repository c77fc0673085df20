/* grid_tokens.h: an agent's tokens by a GPU's warp, with the result of grid_observe_tokens (grid_observe.h).

     cells that are seen, by rank ─► a list ─► a lane each: counts its tokens, then writes them, a word each, where
     those of the lanes before it end ─► bytes of the row

   List and words lie in the warp's scratch: single bytes written to the row by each lane would be a transaction of the
   memory each. */
#ifndef GRID_TOKENS_H
#define GRID_TOKENS_H

#include "grid_emit.h"

static_assert(4 * (GRID_CELLS + GRID_TOKENS) <= MF_LANES_BYTES, "tokens need more scratch than the host gives");

/* How many tokens grid_emit_cell emits. */
MF_FN int32_t grid_count_cell(const Grid *g, int32_t cell) {
    if (cell == 1)
        return 1;
    if (grid_is_agent(g, cell)) {
        const GridAgent *a = g->agents + (cell - 2);
        return 3 + (a->frozen != 0) + (a->color != 0) + (a->glyph != 0) + MF_POPCOUNT(a->cache_items);
    }
    const GridObject *o = grid_object(g, cell);
    return 1 + (grid_color(o->type) != 0) + (o->phase != GRID_IDLE) + (o->type == GRID_BLOCK) +
           MF_POPCOUNT(o->cache_items);
}

/* List the window's cells that are not empty, by rank: location << 16 | cell. Returns how many. */
MF_FN int32_t grid_list_seen(const Grid *g, const GridAgent *a, uint32_t *list, int32_t lane) {
    enum { EACH = (GRID_CELLS + 31) / 32 };
    int32_t location[EACH], cell[EACH], n = 0;
    MF_UNROLL
    for (int32_t i = 0; i < EACH; i++) { /* all are read before the first is waited for */
        location[i] = GRID_LOCATION[mf_min(lane + 32 * i, GRID_CELLS - 1)];
        const int32_t row = a->row - GRID_PAD + (location[i] >> 4), col = a->col - GRID_PAD + (location[i] & 15);
        const int32_t there = lane + 32 * i < GRID_CELLS && grid_on_map(g, row, col);
        cell[i] = there ? *grid_cell(g, row, col) : 0;
    }
    MF_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        const uint32_t seen = MF_LANES_VOTE(cell[i]);
        if (cell[i])
            list[n + mf_lanes_before(seen, lane)] = (uint32_t)(location[i] << 16 | cell[i]);
        n += MF_POPCOUNT(seen);
    }
    MF_LANES_SYNC();
    return n;
}

/* Eight bytes of the row at a time, from tokens that are a word each. */
MF_FN void grid_write_tokens(const uint32_t *words, int32_t count, uint8_t *out, int32_t lane) {
    for (int32_t i = lane; i < 3 * GRID_TOKENS / 8; i += 32) {
        const int32_t first = 8 * i / 3, shift = 8 * (8 * i - 3 * first);
        uint64_t token[4];
        MF_UNROLL
        for (int32_t k = 0; k < 4; k++)
            token[k] = first + k < count ? words[first + k] : 0xffffff;
        const uint64_t low = token[0] | token[1] << 24 | token[2] << 48, high = token[2] >> 16 | token[3] << 8;
        ((uint64_t *)out)[i] = low >> shift | high << 8 << (56 - shift);
    }
}

/* By a warp: a lane for each cell that is seen, which counts its tokens before it writes them. */
MF_FN void grid_share_tokens(const Grid *g, const GridAgent *a, uint8_t *out, int32_t lane) {
    uint32_t *list = (uint32_t *)MF_LANES_SCRATCH();
    const GridTokens t = {0, 0, list + GRID_CELLS};
    const int32_t seen = grid_list_seen(g, a, list, lane);
    int32_t n = grid_emit_globals(g, t, a); /* the same words by all */
    for (int32_t first = 0; first < seen; first += 32) {
        const int32_t entry = first + lane < seen ? (int32_t)list[first + lane] : 0, cell = entry & 0xffff;
        int32_t total;
        const int32_t below = MF_LANES_SUM(cell ? grid_count_cell(g, cell) : 0, lane, &total);
        if (cell)
            grid_emit_cell(g, t, n + below, entry >> 16, cell);
        n += total;
    }
    MF_LANES_SYNC();
    grid_write_tokens(t.words, mf_min(n, GRID_TOKENS), out, lane);
}

#endif
