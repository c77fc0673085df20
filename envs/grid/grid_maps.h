/* grid_maps.h: the map builders. Draws are consecutive numbers of stream 0 of the episode, so a map depends on
   (seed, env, episode) and not on what agents did before.

   arena  rooms side by side inside a border, no walls between
   rooms  the same with a wall line between, one door in the wall to the right and one in the wall below
   maze   a perfect maze by depth-first search; objects in dead ends, agents anywhere else
   table  one of the ASCII maps that config.py read */
#ifndef GRID_MAPS_H
#define GRID_MAPS_H

#include "grid_state.h"

typedef struct {
    Grid g;
    mf_rng rng;
    uint16_t *list; /* scratch: cells still free, as row * width + col. Lies in the plane, painted afterwards */
    int32_t length, taken;
    int32_t agents; /* placed so far */
} GridBuilder;

MF_FN void grid_list(GridBuilder *b, int32_t row, int32_t col) {
    b->list[b->length++] = (uint16_t)(row * b->g.c->width + col);
}

MF_FN void grid_list_clear(GridBuilder *b) { b->length = b->taken = 0; }

MF_FN void grid_put_agent(GridBuilder *b, int32_t row, int32_t col, int32_t group) {
    if (b->agents >= b->g.c->num_agents)
        return;
    GridAgent *a = b->g.agents + b->agents;
    a->row = (uint8_t)row, a->col = (uint8_t)col, a->group = (uint8_t)group;
    *grid_cell(&b->g, row, col) = (int16_t)(2 + b->agents++);
}

MF_FN void grid_put_thing(GridBuilder *b, int32_t type, int32_t row, int32_t col) {
    GridHead *head = b->g.head;
    if (type == GRID_WALL) {
        *grid_cell(&b->g, row, col) = 1;
    } else if (head->num_objects < b->g.c->max_objects) {
        GridObject *o = b->g.objects + head->num_objects;
        o->type = (uint8_t)type, o->row = (uint8_t)row, o->col = (uint8_t)col;
        *grid_cell(&b->g, row, col) = (int16_t)(2 + b->g.c->num_agents + head->num_objects++);
    }
}

/* Agents on the next cells of the list. */
MF_FN void grid_fill_agents(GridBuilder *b, int32_t count, int32_t group) {
    for (int32_t n = 0; n < count && b->taken < b->length; n++) {
        const int32_t at = b->list[b->taken++];
        grid_put_agent(b, at / b->g.c->width, at % b->g.c->width, group);
    }
}

/* One room's objects on the next cells of the list: mines, generators, altar, the others, walls, blocks. */
MF_FN void grid_fill_things(GridBuilder *b) {
    for (int32_t k = GRID_MINE; k <= GRID_BLOCK + 1; k++) {
        const int32_t type = k < GRID_BLOCK ? k : k == GRID_BLOCK ? GRID_WALL : GRID_BLOCK;
        for (int32_t n = 0; n < b->g.c->count[type] && b->taken < b->length; n++) {
            const int32_t at = b->list[b->taken++];
            grid_put_thing(b, type, at / b->g.c->width, at % b->g.c->width);
        }
    }
}

MF_FN void grid_all_walls(const Grid *g) {
    for (int32_t i = 0; i < g->c->height * g->c->width; i++)
        g->cells[i] = 1;
}

/* Is there a door straight across the wall line from (row, col), a cell at (y, x) of its room? */
MF_FN int32_t grid_at_door(const Grid *g, int32_t row, int32_t col, int32_t y, int32_t x) {
    const int32_t up = y == 0 && grid_on_map(g, row - 1, col) && *grid_cell(g, row - 1, col) == 0;
    const int32_t down = y == g->c->room_height - 1 && grid_on_map(g, row + 1, col) && *grid_cell(g, row + 1, col) == 0;
    const int32_t left = x == 0 && grid_on_map(g, row, col - 1) && *grid_cell(g, row, col - 1) == 0;
    const int32_t right = x == g->c->room_width - 1 && grid_on_map(g, row, col + 1) && *grid_cell(g, row, col + 1) == 0;
    return up || down || left || right;
}

MF_FN void grid_build_rooms(GridBuilder *b) {
    const Grid *g = &b->g;
    const GridConfig *c = g->c;
    const int32_t gap = c->map_kind == GRID_MAP_ROOMS, rooms = c->rooms_y * c->rooms_x;
    const int32_t step_y = c->room_height + gap, step_x = c->room_width + gap;
    grid_all_walls(g);
    for (int32_t r = 0; r < rooms; r++) {
        const int32_t top = c->border + r / c->rooms_x * step_y, left = c->border + r % c->rooms_x * step_x;
        for (int32_t y = 0; y < c->room_height; y++)
            for (int32_t x = 0; x < c->room_width; x++)
                *grid_cell(g, top + y, left + x) = 0;
    }
    for (int32_t r = 0; gap && r < rooms; r++) {
        const int32_t top = c->border + r / c->rooms_x * step_y, left = c->border + r % c->rooms_x * step_x;
        if (r % c->rooms_x + 1 < c->rooms_x)
            *grid_cell(g, top + mf_randbelow(&b->rng, c->room_height), left + c->room_width) = 0;
        if (r / c->rooms_x + 1 < c->rooms_y)
            *grid_cell(g, top + c->room_height, left + mf_randbelow(&b->rng, c->room_width)) = 0;
    }
    for (int32_t r = 0; r < rooms; r++) {
        const int32_t top = c->border + r / c->rooms_x * step_y, left = c->border + r % c->rooms_x * step_x;
        grid_list_clear(b);
        for (int32_t y = 0; y < c->room_height; y++)
            for (int32_t x = 0; x < c->room_width; x++)
                if (!gap || !grid_at_door(g, top + y, left + x, y, x))
                    grid_list(b, top + y, left + x);
        mf_shuffle(&b->rng, b->list, b->length);
        grid_fill_agents(b, c->num_agents / rooms + (r < c->num_agents % rooms), c->group_by_room ? r : 0);
        grid_fill_things(b);
    }
}

/* Map cell of maze cell (y, x). */
MF_FN int16_t *grid_maze_cell(const Grid *g, int32_t y, int32_t x) {
    return grid_cell(g, g->c->border + 2 * y, g->c->border + 2 * x);
}

MF_FN void grid_carve(GridBuilder *b) {
    const GridConfig *c = b->g.c;
    uint16_t *stack = b->list; /* maze cells, as y * room_width + x */
    int32_t depth = 1;
    grid_all_walls(&b->g);
    stack[0] = 0;
    *grid_maze_cell(&b->g, 0, 0) = 0;
    while (depth > 0) {
        const int32_t y = stack[depth - 1] / c->room_width, x = stack[depth - 1] % c->room_width;
        int32_t dy[4], dx[4], n = 0;
        for (int32_t side = GRID_UP; side <= GRID_RIGHT; side++) {
            const int32_t sy = (side == GRID_DOWN) - (side == GRID_UP), sx = (side == GRID_RIGHT) - (side == GRID_LEFT);
            if ((uint32_t)(y + sy) < (uint32_t)c->room_height && (uint32_t)(x + sx) < (uint32_t)c->room_width &&
                *grid_maze_cell(&b->g, y + sy, x + sx) == 1) {
                dy[n] = sy;
                dx[n++] = sx;
            }
        }
        if (n == 0) {
            depth--;
            continue;
        }
        const int32_t k = mf_randbelow(&b->rng, n);
        grid_maze_cell(&b->g, y, x)[dy[k] * c->width + dx[k]] = 0;
        *grid_maze_cell(&b->g, y + dy[k], x + dx[k]) = 0;
        stack[depth++] = (uint16_t)((y + dy[k]) * c->room_width + x + dx[k]);
    }
}

MF_FN void grid_build_maze(GridBuilder *b) {
    const Grid *g = &b->g;
    const GridConfig *c = g->c;
    grid_carve(b);
    grid_list_clear(b);
    for (int32_t y = 0; y < c->room_height; y++)
        for (int32_t x = 0; x < c->room_width; x++) {
            const int16_t *cell = grid_maze_cell(g, y, x);
            const int32_t open = (cell[-c->width] == 0) + (cell[c->width] == 0) + (cell[-1] == 0) + (cell[1] == 0);
            if (open == 1)
                grid_list(b, c->border + 2 * y, c->border + 2 * x);
        }
    mf_shuffle(&b->rng, b->list, b->length);
    grid_fill_things(b);
    grid_list_clear(b);
    for (int32_t row = 0; row < c->height; row++)
        for (int32_t col = 0; col < c->width; col++)
            if (*grid_cell(g, row, col) == 0)
                grid_list(b, row, col);
    mf_shuffle(&b->rng, b->list, b->length);
    grid_fill_agents(b, c->num_agents, 0);
}

MF_FN void grid_build_table(GridBuilder *b) {
    const GridConfig *c = b->g.c;
    const int32_t map = c->num_maps > 1 ? mf_randbelow(&b->rng, c->num_maps) : 0;
    const uint8_t *cell = b->g.p->maps + (int64_t)map * c->height * c->width;
    for (int32_t row = 0; row < c->height; row++)
        for (int32_t col = 0; col < c->width; col++, cell++) {
            if (*cell == GRID_AGENT)
                grid_put_agent(b, row, col, 0);
            else if (*cell != 255)
                grid_put_thing(b, *cell, row, col);
        }
}

/* Recompute bits and plane from cells, agents and objects. */
MF_FN void grid_paint_all(const Grid *g) {
    const int32_t rows = g->c->height + 2 * GRID_PAD;
    MF_FILL(g->bits, 0, (uint64_t)(4 * rows * g->p->bit_words));
    MF_FILL(g->plane, 0, (uint64_t)(rows * g->p->plane_stride));
    for (int32_t row = 0; row < g->c->height; row++)
        for (int32_t col = 0; col < g->c->width; col++) {
            const int32_t cell = *grid_cell(g, row, col);
            if (cell != 0)
                *grid_bits(g, row, col) |= grid_bit(col);
            if (cell == 1)
                grid_plane(g, row, col)[0] = GRID_WALL + 1;
        }
    for (int32_t k = 0; k < g->c->num_agents; k++)
        grid_paint_agent(g, g->agents + k);
    for (int32_t j = 0; j < g->head->num_objects; j++)
        grid_paint_object(g, g->objects + j);
}

/* Put walls, objects and agents on an env whose state is all zero but for its head. */
MF_FN void grid_build(const Grid *g, uint64_t seed, uint32_t env) {
    GridBuilder b;
    b.g = *g;
    b.list = (uint16_t *)g->plane;
    b.agents = 0;
    grid_list_clear(&b);
    mf_rng_start(&b.rng, seed, env, g->head->episode, GRID_STREAM_MAP);
    if (g->c->map_kind == GRID_MAP_TABLE)
        grid_build_table(&b);
    else if (g->c->map_kind == GRID_MAP_MAZE)
        grid_build_maze(&b);
    else
        grid_build_rooms(&b);
}

#endif
