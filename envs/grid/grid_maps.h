/* grid_maps.h: the map builders. Draws are consecutive numbers of stream 0 of the episode, so a map depends on
   (seed, env, episode) and not on what agents did before.

   arena  rooms side by side inside a border, no walls between
   rooms  the same with a wall line between, one door in the wall to the right and one in the wall below
   maze   a perfect maze by depth-first search; objects in dead ends, agents anywhere else
   table  one of the ASCII maps that config.py read

   Lanes (contract.h): every lane has a GridBuilder of its own with the same numbers in it; cells, agents, objects and
   the list are written by whoever's share they are. */
#ifndef GRID_MAPS_H
#define GRID_MAPS_H

#include "grid_state.h"

typedef struct {
    Grid g;
    mf_rng rng;
    uint16_t *list;  /* scratch: cells still free, as row * width + col. Lies in the plane, painted afterwards */
    uint16_t *draws; /* scratch of the shuffle, behind the longest list */
    int32_t length, taken;
    int32_t agents, objects; /* placed so far */
    int32_t lane, lanes;
} GridBuilder;

MF_FN void grid_list_clear(GridBuilder *b) { b->length = b->taken = 0; }

/* Each lane comes with a cell; those that are kept go on the list in the order of the lanes. */
MF_FN void grid_list_if(GridBuilder *b, int32_t row, int32_t col, int32_t keep) {
    const uint32_t kept = MF_LANES_VOTE(keep);
    if (keep)
        b->list[b->length + mf_lanes_before(kept, b->lane)] = (uint16_t)(row * b->g.c->width + col);
    b->length += MF_POPCOUNT(kept);
}

MF_FN void grid_list_shuffle(GridBuilder *b) {
    MF_LANES_SYNC();
    mf_shuffle_lanes(&b->rng, b->list, b->length, b->draws, b->lane, b->lanes);
}

MF_FN void grid_put_agent(const GridBuilder *b, int32_t number, int32_t row, int32_t col, int32_t group) {
    GridAgent *a = b->g.agents + number;
    a->row = (uint8_t)row, a->col = (uint8_t)col, a->group = (uint8_t)group;
    *grid_cell(&b->g, row, col) = (int16_t)(2 + number);
}

/* A wall, or object `number` unless that is one too many. */
MF_FN void grid_put_thing(const GridBuilder *b, int32_t number, int32_t type, int32_t row, int32_t col) {
    if (type == GRID_WALL) {
        *grid_cell(&b->g, row, col) = 1;
    } else if (number < b->g.c->max_objects) {
        GridObject *o = b->g.objects + number;
        o->type = (uint8_t)type, o->row = (uint8_t)row, o->col = (uint8_t)col;
        *grid_cell(&b->g, row, col) = (int16_t)(2 + b->g.c->num_agents + number);
    }
}

MF_FN void grid_count_things(GridBuilder *b, int32_t type, int32_t count) {
    if (type != GRID_WALL)
        b->objects = mf_min(b->objects + count, b->g.c->max_objects);
}

/* Agents on the next cells of the list. */
MF_FN void grid_fill_agents(GridBuilder *b, int32_t count, int32_t group) {
    const int32_t taken = mf_min(count, b->length - b->taken), placed = mf_min(taken, b->g.c->num_agents - b->agents);
    for (int32_t n = b->lane; n < placed; n += b->lanes) {
        const int32_t at = b->list[b->taken + n];
        grid_put_agent(b, b->agents + n, at / b->g.c->width, at % b->g.c->width, group);
    }
    b->taken += taken;
    b->agents += placed;
}

/* One room's objects on the next cells of the list: mines, generators, altar, the others, walls, blocks. */
MF_FN void grid_fill_things(GridBuilder *b) {
    for (int32_t k = GRID_MINE; k <= GRID_BLOCK + 1; k++) {
        const int32_t type = k < GRID_BLOCK ? k : k == GRID_BLOCK ? GRID_WALL : GRID_BLOCK;
        const int32_t taken = mf_min(b->g.c->count[type], b->length - b->taken);
        for (int32_t n = b->lane; n < taken; n += b->lanes) {
            const int32_t at = b->list[b->taken + n];
            grid_put_thing(b, b->objects + n, type, at / b->g.c->width, at % b->g.c->width);
        }
        b->taken += taken;
        grid_count_things(b, type, taken);
    }
    MF_LANES_SYNC();
}

MF_FN void grid_all_walls(const GridBuilder *b) {
    for (int32_t i = b->lane; i < b->g.c->height * b->g.c->width; i += b->lanes)
        b->g.cells[i] = 1;
    MF_LANES_SYNC();
}

/* Is there a door straight across the wall line from (row, col), a cell at (y, x) of its room? */
MF_FN int32_t grid_at_door(const Grid *g, int32_t row, int32_t col, int32_t y, int32_t x) {
    const int32_t up = y == 0 && grid_on_map(g, row - 1, col) && *grid_cell(g, row - 1, col) == 0;
    const int32_t down = y == g->c->room_height - 1 && grid_on_map(g, row + 1, col) && *grid_cell(g, row + 1, col) == 0;
    const int32_t left = x == 0 && grid_on_map(g, row, col - 1) && *grid_cell(g, row, col - 1) == 0;
    const int32_t right = x == g->c->room_width - 1 && grid_on_map(g, row, col + 1) && *grid_cell(g, row, col + 1) == 0;
    return up || down || left || right;
}

MF_FN void grid_open_door(const GridBuilder *b, int32_t row, int32_t col) {
    if (b->lane == 0)
        *grid_cell(&b->g, row, col) = 0;
}

MF_FN void grid_build_rooms(GridBuilder *b) {
    const Grid *g = &b->g;
    const GridConfig *c = g->c;
    const int32_t gap = GRID_ONLY_MAP(c) == GRID_MAP_ROOMS, rooms = c->rooms_y * c->rooms_x;
    const int32_t step_y = c->room_height + gap, step_x = c->room_width + gap;
    grid_all_walls(b);
    for (int32_t r = 0; r < rooms; r++) {
        const int32_t top = c->border + r / c->rooms_x * step_y, left = c->border + r % c->rooms_x * step_x;
        for (int32_t y = 0; y < c->room_height; y++)
            for (int32_t x = b->lane; x < c->room_width; x += b->lanes)
                *grid_cell(g, top + y, left + x) = 0;
    }
    for (int32_t r = 0; gap && r < rooms; r++) {
        const int32_t top = c->border + r / c->rooms_x * step_y, left = c->border + r % c->rooms_x * step_x;
        if (r % c->rooms_x + 1 < c->rooms_x)
            grid_open_door(b, top + mf_randbelow(&b->rng, c->room_height), left + c->room_width);
        if (r / c->rooms_x + 1 < c->rooms_y)
            grid_open_door(b, top + c->room_height, left + mf_randbelow(&b->rng, c->room_width));
    }
    MF_LANES_SYNC();
    for (int32_t r = 0; r < rooms; r++) {
        const int32_t top = c->border + r / c->rooms_x * step_y, left = c->border + r % c->rooms_x * step_x;
        grid_list_clear(b);
        for (int32_t y = 0; y < c->room_height; y++)
            for (int32_t x = b->lane; x - b->lane < c->room_width; x += b->lanes)
                grid_list_if(b, top + y, left + x,
                             x < c->room_width && (!gap || !grid_at_door(g, top + y, left + x, y, x)));
        grid_list_shuffle(b);
        grid_fill_agents(b, c->num_agents / rooms + (r < c->num_agents % rooms), c->group_by_room ? r : 0);
        grid_fill_things(b);
    }
}

/* Map cell of maze cell (y, x). */
MF_FN int16_t *grid_maze_cell(const Grid *g, int32_t y, int32_t x) {
    return grid_cell(g, g->c->border + 2 * y, g->c->border + 2 * x);
}

/* One lane's work, which draws a number for each maze cell but the first. */
MF_FN void grid_carve(GridBuilder *b) {
    const GridConfig *c = b->g.c;
    uint16_t *stack = b->list; /* maze cells, as y << 8 | x */
    int32_t depth = 1;
    stack[0] = 0;
    *grid_maze_cell(&b->g, 0, 0) = 0;
    while (depth > 0) {
        const int32_t y = stack[depth - 1] >> 8, x = stack[depth - 1] & 255;
        uint32_t sides = 0; /* bit i: the neighbour on side i is not carved yet */
        for (int32_t side = GRID_UP; side <= GRID_RIGHT; side++) {
            const int32_t sy = (side == GRID_DOWN) - (side == GRID_UP), sx = (side == GRID_RIGHT) - (side == GRID_LEFT);
            if ((uint32_t)(y + sy) < (uint32_t)c->room_height && (uint32_t)(x + sx) < (uint32_t)c->room_width &&
                *grid_maze_cell(&b->g, y + sy, x + sx) == 1)
                sides |= 1u << side;
        }
        if (sides == 0) {
            depth--;
            continue;
        }
        for (int32_t k = mf_randbelow(&b->rng, MF_POPCOUNT(sides)); k > 0; k--)
            sides &= sides - 1;
        const int32_t side = MF_CTZ(sides);
        const int32_t sy = (side == GRID_DOWN) - (side == GRID_UP), sx = (side == GRID_RIGHT) - (side == GRID_LEFT);
        grid_maze_cell(&b->g, y, x)[sy * c->width + sx] = 0;
        *grid_maze_cell(&b->g, y + sy, x + sx) = 0;
        stack[depth++] = (uint16_t)((y + sy) << 8 | (x + sx));
    }
}

MF_FN void grid_build_maze(GridBuilder *b) {
    const Grid *g = &b->g;
    const GridConfig *c = g->c;
    grid_all_walls(b);
    if (b->lane == 0)
        grid_carve(b);
    else
        mf_rng_skip(&b->rng, (uint32_t)(c->room_height * c->room_width - 1));
    MF_LANES_SYNC();
    grid_list_clear(b);
    for (int32_t y = 0; y < c->room_height; y++)
        for (int32_t x = b->lane; x - b->lane < c->room_width; x += b->lanes) {
            int32_t open = 0;
            if (x < c->room_width) {
                const int16_t *cell = grid_maze_cell(g, y, x);
                open = (cell[-c->width] == 0) + (cell[c->width] == 0) + (cell[-1] == 0) + (cell[1] == 0);
            }
            grid_list_if(b, c->border + 2 * y, c->border + 2 * x, open == 1);
        }
    grid_list_shuffle(b);
    grid_fill_things(b);
    grid_list_clear(b);
    for (int32_t row = 0; row < c->height; row++)
        for (int32_t col = b->lane; col - b->lane < c->width; col += b->lanes)
            grid_list_if(b, row, col, col < c->width && *grid_cell(g, row, col) == 0);
    grid_list_shuffle(b);
    grid_fill_agents(b, c->num_agents, 0);
}

MF_FN void grid_build_table(GridBuilder *b) {
    const GridConfig *c = b->g.c;
    const int32_t map = c->num_maps > 1 ? mf_randbelow(&b->rng, c->num_maps) : 0;
    const uint8_t *table = b->g.p->maps + (int64_t)map * c->height * c->width;
    for (int32_t row = 0; row < c->height; row++, table += c->width)
        for (int32_t col = b->lane; col - b->lane < c->width; col += b->lanes) {
            const int32_t type = col < c->width ? table[col] : 255;
            const int32_t is_agent = type == GRID_AGENT, is_object = type > GRID_WALL && type != 255;
            const uint32_t agents = MF_LANES_VOTE(is_agent), objects = MF_LANES_VOTE(is_object);
            const int32_t number = b->agents + mf_lanes_before(agents, b->lane);
            if (is_agent && number < c->num_agents)
                grid_put_agent(b, number, row, col, 0);
            else if (is_object || type == GRID_WALL)
                grid_put_thing(b, b->objects + mf_lanes_before(objects, b->lane), type, row, col);
            b->agents = mf_min(b->agents + MF_POPCOUNT(agents), c->num_agents);
            grid_count_things(b, GRID_BLOCK, MF_POPCOUNT(objects));
        }
}

/* Bits and plane from cells, agents and objects. The bits are all zero before. */
MF_FN void grid_paint_all(const Grid *g, int32_t lane, int32_t lanes) {
    const GridConfig *c = g->c;
    uint8_t *state = (uint8_t *)g->head;
    mf_zero(state, g->p->plane_at / 8 * 8, g->p->size, lane, lanes); /* the last bits, too: of a row of padding */
    MF_LANES_SYNC();
    for (int32_t i = lane; i < c->height * g->p->bit_words; i += lanes) {
        const int32_t row = i / g->p->bit_words, first = 32 * (i % g->p->bit_words) - GRID_PAD;
        uint32_t word = 0;
        for (int32_t col = first < 0 ? 0 : first; col < mf_min(first + 32, c->width); col++) {
            const int32_t cell = *grid_cell(g, row, col);
            word |= (uint32_t)(cell != 0) << (col - first);
            if (cell == 1)
                grid_plane(g, row, col)[0] = GRID_WALL + 1;
        }
        g->bits[(row + GRID_PAD) * g->p->bit_words + i % g->p->bit_words] = word;
    }
    for (int32_t k = lane; k < c->num_agents; k += lanes)
        grid_paint_agent(g, g->agents + k);
    for (int32_t j = lane; j < g->head->num_objects; j += lanes)
        grid_paint_object(g, g->objects + j);
}

/* Put walls, objects and agents on an env whose state is all zero but for its head. */
MF_FN void grid_build(const Grid *g, uint64_t seed, uint32_t env, uint32_t episode, int32_t lane, int32_t lanes) {
    GridBuilder b;
    b.g = *g;
    b.list = (uint16_t *)g->plane;
    b.draws = b.list + g->c->height * g->c->width;
    b.agents = b.objects = 0;
    b.lane = lane, b.lanes = lanes;
    grid_list_clear(&b);
    mf_rng_start(&b.rng, seed, env, episode, GRID_STREAM_MAP);
    if (GRID_ONLY_MAP(g->c) == GRID_MAP_TABLE)
        grid_build_table(&b);
    else if (GRID_ONLY_MAP(g->c) == GRID_MAP_MAZE)
        grid_build_maze(&b);
    else
        grid_build_rooms(&b);
    if (lane == 0)
        g->head->num_objects = b.objects;
    MF_LANES_SYNC();
}

#endif
