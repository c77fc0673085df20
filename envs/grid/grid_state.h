/* grid_state.h: the grid world's configuration, its state as one flat block of bytes, and the few functions
   that change a cell, an inventory or a converter while keeping the derived caches right.

   State of one env (offsets in grid_params, size a multiple of 64):

     GridHead | GridAgent[num_agents] | GridObject[max_objects] | order u16[num_agents]
     | cells i16[height, width]                         0 empty, 1 wall, 2+k agent k, 2+num_agents+j object j
     | bits u32[height+10, words]        cache: 1 where a cell is not empty, padded by 5 cells on each side
     | plane u8[height+10, width+10, 3]  cache: the three bytes of the compact observation, padded likewise

   Names that start with `cache_`, and bits and plane, follow from the rest; tests recompute them. */
#ifndef GRID_STATE_H
#define GRID_STATE_H

#include "philox.h"

enum { GRID_ITEMS = 10, GRID_TYPES = 15, GRID_ACTIONS = 9, GRID_VIEW = 11, GRID_PAD = 5, GRID_MAX_SIDE = 255 };
enum { GRID_MAP_TABLE, GRID_MAP_ARENA, GRID_MAP_ROOMS, GRID_MAP_MAZE };
enum { GRID_OBS_TOKENS, GRID_OBS_DENSE, GRID_OBS_COMPACT };
enum { GRID_AGENT = 0, GRID_WALL = 1, GRID_MINE = 2, GRID_GENERATOR = 5, GRID_ALTAR = 8, GRID_BLOCK = 14 };
enum { GRID_ORE = 0, GRID_BATTERY = 3, GRID_HEART = 6, GRID_ARMOR = 7, GRID_LASER = 8, GRID_BLUEPRINT = 9 };
enum { GRID_UP, GRID_DOWN, GRID_LEFT, GRID_RIGHT };
enum { GRID_IDLE, GRID_CONVERTING, GRID_COOLING };
enum { GRID_NOOP, GRID_MOVE, GRID_ROTATE, GRID_PUT, GRID_GET, GRID_ATTACK, GRID_SWAP, GRID_COLOR, GRID_GLYPH };
enum { GRID_STAT_HEARTS, GRID_STAT_ORE, GRID_STAT_BATTERY, GRID_STAT_PUT, GRID_STAT_HITS, GRID_STAT_STOLEN,
       GRID_STAT_MOVES, GRID_STAT_FAILED };
enum { GRID_STREAM_MAP, GRID_STREAM_ORDER };
enum { grid_priorities = 2, grid_action_width = 2, grid_stats = 8 };
typedef int32_t grid_action;

/* The record GRID_CONFIG of names.py, field for field. */
typedef struct {
    int32_t height, width; /* whole map, border included */
    int32_t num_agents, max_steps, limit_is_terminal;
    int32_t map_kind, num_maps; /* num_maps: maps in the table */
    int32_t border, rooms_y, rooms_x, room_height, room_width;
    int32_t count[GRID_TYPES]; /* objects a room; count[0] unused */
    int32_t group_by_room, max_objects;
    int32_t recipe_in[GRID_TYPES][GRID_ITEMS], recipe_out[GRID_TYPES][GRID_ITEMS];
    int32_t cooldown[GRID_TYPES], conversion_ticks[GRID_TYPES], max_output[GRID_TYPES], initial[GRID_TYPES];
    int32_t item_cap[GRID_ITEMS];
    int32_t reward_weight[GRID_ITEMS], reward_cap[GRID_ITEMS]; /* thousandths */
    int32_t freeze_duration, actions_enabled; /* bit i: action i */
    float group_reward_pct;
    int32_t observation;
} GridConfig;

typedef struct {
    GridConfig config;
    const uint8_t *maps; /* [num_maps, height, width]: 255 empty, 0 agent, else type; null without a table */
    int64_t size;
    int32_t objects_at, order_at, cells_at, bits_at, plane_at; /* offsets of the parts; agents follow the head */
    int32_t bit_words, plane_stride;                           /* of one row: u32 words; bytes */
    int32_t obs_size, reward_items;                            /* reward_items: value of feature 13 */
    uint16_t in_items[GRID_TYPES], out_items[GRID_TYPES];      /* bit i: item i is in the recipe */
} grid_params;

typedef struct {
    int32_t step;
    uint32_t lifetime, episode;
    int32_t pending_reset;
    int32_t num_objects;
    int32_t cache_next_due;   /* least `due` of the objects that are not idle, else the largest int32 */
    int32_t cache_completion; /* feature 8 */
    int32_t zero[9];
} GridHead;

typedef struct { /* the first 17 bytes are the compact observation's own[0:17] */
    uint8_t item[GRID_ITEMS];
    uint8_t orientation, frozen, group, color, glyph, last_action, last_arg;
    uint8_t row, col, zero;
    uint16_t cache_items; /* bit i: item[i] > 0 */
    uint16_t zero2;
    int32_t reward; /* of this step, thousandths, before sharing */
    int32_t stat[grid_stats];
    int32_t zero3;
} GridAgent;

typedef struct {
    uint8_t item[GRID_ITEMS];
    uint8_t type, row, col, phase;
    uint16_t cache_items;
    int32_t due; /* step of the next event, 0 when idle */
} GridObject;

/* One env, opened: pointers into its bytes. */
typedef struct {
    const grid_params *p;
    const GridConfig *c;
    GridHead *head;
    GridAgent *agents;
    GridObject *objects;
    uint16_t *order;
    int16_t *cells;
    uint32_t *bits;
    uint8_t *plane;
} Grid;

#define GRID_NEVER 0x7fffffff

/* Kernels are compiled for one kind of map and of observation; the CPU's code is for all. */
#ifndef GRID_ONLY_MAP
#define GRID_ONLY_MAP(c) ((c)->map_kind)
#endif
#ifndef GRID_ONLY_OBSERVATION
#define GRID_ONLY_OBSERVATION(c) ((c)->observation)
#endif

MF_FN int32_t grid_round_up(int32_t bytes, int32_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Fill in all that follows from p->config; `maps` is left alone. */
MF_FN void grid_prepare(grid_params *p) {
    const GridConfig *c = &p->config;
    const int32_t rows = c->height + 2 * GRID_PAD, cols = c->width + 2 * GRID_PAD;
    const int32_t agents_at = (int32_t)sizeof(GridHead);
    p->bit_words = cols / 32 + 2; /* a window's bits are read from two words */
    p->plane_stride = 3 * cols;
    p->objects_at = agents_at + c->num_agents * (int32_t)sizeof(GridAgent);
    p->order_at = p->objects_at + c->max_objects * (int32_t)sizeof(GridObject);
    p->cells_at = p->order_at + grid_round_up(2 * c->num_agents, 4);
    p->bits_at = p->cells_at + grid_round_up(2 * c->height * c->width, 4);
    p->plane_at = p->bits_at + 4 * rows * p->bit_words;
    p->size = grid_round_up(p->plane_at + rows * p->plane_stride, 64);
    p->obs_size = c->observation == GRID_OBS_TOKENS  ? 600
                  : c->observation == GRID_OBS_DENSE ? GRID_VIEW * GRID_VIEW * 24
                                                     : GRID_VIEW * GRID_VIEW * 3 + 24;
    p->reward_items = 0;
    for (int32_t i = 0; i < 8; i++)
        if (c->reward_weight[i] != 0)
            p->reward_items |= 1 << (7 - i);
    for (int32_t type = 0; type < GRID_TYPES; type++) {
        uint32_t in = 0, out = 0;
        for (uint32_t i = 0; i < GRID_ITEMS; i++) {
            in |= (uint32_t)(c->recipe_in[type][i] > 0) << i;
            out |= (uint32_t)(c->recipe_out[type][i] > 0) << i;
        }
        p->in_items[type] = (uint16_t)in;
        p->out_items[type] = (uint16_t)out;
    }
}

MF_FN int64_t grid_state_size(const grid_params *p) { return p->size; }
MF_FN int32_t grid_num_agents(const grid_params *p) { return p->config.num_agents; }
MF_FN int32_t grid_obs_size(const grid_params *p) { return p->obs_size; }

MF_FN Grid grid_open(const grid_params *p, uint8_t *state) {
    Grid g;
    g.p = p;
    g.c = &p->config;
    g.head = (GridHead *)state;
    g.agents = (GridAgent *)(state + sizeof(GridHead));
    g.objects = (GridObject *)(state + p->objects_at);
    g.order = (uint16_t *)(state + p->order_at);
    g.cells = (int16_t *)(state + p->cells_at);
    g.bits = (uint32_t *)(state + p->bits_at);
    g.plane = state + p->plane_at;
    return g;
}

/* ---- cells ---- */

MF_FN int32_t grid_on_map(const Grid *g, int32_t row, int32_t col) {
    return (uint32_t)row < (uint32_t)g->c->height && (uint32_t)col < (uint32_t)g->c->width;
}

MF_FN int16_t *grid_cell(const Grid *g, int32_t row, int32_t col) { return g->cells + row * g->c->width + col; }

MF_FN uint8_t *grid_plane(const Grid *g, int32_t row, int32_t col) {
    return g->plane + (row + GRID_PAD) * g->p->plane_stride + 3 * (col + GRID_PAD);
}

MF_FN uint32_t *grid_bits(const Grid *g, int32_t row, int32_t col) {
    return g->bits + (row + GRID_PAD) * g->p->bit_words + ((col + GRID_PAD) >> 5);
}

MF_FN uint32_t grid_bit(int32_t col) { return 1u << ((col + GRID_PAD) & 31); }

/* What cell value v > 1 stands for. */
MF_FN int32_t grid_is_agent(const Grid *g, int32_t v) { return (uint32_t)(v - 2) < (uint32_t)g->c->num_agents; }
MF_FN GridObject *grid_object(const Grid *g, int32_t v) { return g->objects + (v - 2 - g->c->num_agents); }

/* Sum of the items in `set`, at most 15. */
MF_FN int32_t grid_sum15(const uint8_t *item, uint32_t set) {
    int32_t sum = 0;
    for (; set; set &= set - 1)
        sum += item[MF_CTZ(set)];
    return mf_min(sum, 15);
}

MF_FN void grid_paint_agent(const Grid *g, const GridAgent *a) {
    uint8_t *cell = grid_plane(g, a->row, a->col);
    cell[0] = GRID_AGENT + 1;
    cell[1] = (uint8_t)(1 + a->orientation + 4 * (a->frozen > 0) + 8 * mf_min(a->group, 15));
    cell[2] = (uint8_t)(grid_sum15(a->item, a->cache_items) + 16 * mf_min(a->item[GRID_LASER], 15));
}

MF_FN void grid_paint_object(const Grid *g, const GridObject *o) {
    uint8_t *cell = grid_plane(g, o->row, o->col);
    const uint32_t gives = g->p->out_items[o->type], takes = g->p->in_items[o->type] & ~gives;
    cell[0] = (uint8_t)(o->type + 1);
    cell[1] = o->phase != GRID_IDLE;
    cell[2] = (uint8_t)(grid_sum15(o->item, gives & o->cache_items) +
                        16 * grid_sum15(o->item, takes & o->cache_items));
}

/* Exchange all that two cells hold (a move: with an empty one). Rows and columns of the owners are the
   caller's to change. */
MF_FN void grid_exchange(const Grid *g, int32_t row, int32_t col, int32_t row2, int32_t col2) {
    int16_t *a = grid_cell(g, row, col), *b = grid_cell(g, row2, col2);
    uint8_t *pa = grid_plane(g, row, col), *pb = grid_plane(g, row2, col2);
    if ((*a == 0) != (*b == 0)) {
        MF_TOGGLE(grid_bits(g, row, col), grid_bit(col));
        MF_TOGGLE(grid_bits(g, row2, col2), grid_bit(col2));
    }
    const int16_t cell = *a;
    *a = *b;
    *b = cell;
    for (int32_t i = 0; i < 3; i++) {
        const uint8_t byte = pa[i];
        pa[i] = pb[i];
        pb[i] = byte;
    }
}

/* ---- inventories ---- */

MF_FN void grid_set_item(uint8_t *item, uint16_t *items, int32_t i, int32_t count) {
    item[i] = (uint8_t)count;
    *items = (uint16_t)((*items & ~(1u << i)) | ((uint32_t)(count > 0) << i));
}

/* Change an agent's count of item i, with the reward for it: the change of min(weight * count, cap). */
MF_FN void grid_give_agent(const Grid *g, GridAgent *a, int32_t i, int32_t change) {
    const int32_t weight = g->c->reward_weight[i], cap = g->c->reward_cap[i];
    const int32_t before = a->item[i], after = before + change;
    grid_set_item(a->item, &a->cache_items, i, after);
    a->reward += mf_min(weight * after, cap) - mf_min(weight * before, cap);
}

MF_FN void grid_give_object(GridObject *o, int32_t i, int32_t change) {
    grid_set_item(o->item, &o->cache_items, i, o->item[i] + change);
}

/* ---- converters ---- */

/* The start test: an idle converter with room for output and all inputs takes them and starts. Returns when it
   is due, GRID_NEVER if it did not start. */
MF_FN int32_t grid_try_start(const Grid *g, GridObject *o) {
    const uint32_t takes = g->p->in_items[o->type], gives = g->p->out_items[o->type];
    int32_t output = 0;
    if (o->phase != GRID_IDLE || gives == 0)
        return GRID_NEVER;
    for (uint32_t set = gives & o->cache_items; set; set &= set - 1)
        output += o->item[MF_CTZ(set)];
    if (output >= g->c->max_output[o->type])
        return GRID_NEVER;
    for (uint32_t set = takes; set; set &= set - 1)
        if (o->item[MF_CTZ(set)] < g->c->recipe_in[o->type][MF_CTZ(set)])
            return GRID_NEVER;
    for (uint32_t set = takes; set; set &= set - 1)
        grid_give_object(o, MF_CTZ(set), -g->c->recipe_in[o->type][MF_CTZ(set)]);
    o->phase = GRID_CONVERTING;
    o->due = g->head->step + g->c->conversion_ticks[o->type];
    return o->due;
}

MF_FN void grid_start(const Grid *g, GridObject *o) {
    const int32_t due = grid_try_start(g, o);
    if (due != GRID_NEVER)
        MF_LOWER(&g->head->cache_next_due, due);
}

MF_FN void grid_go_idle(const Grid *g, GridObject *o) {
    o->phase = GRID_IDLE;
    o->due = 0;
    grid_try_start(g, o);
}

/* The event of a converter that is due: outputs and cool-down, or the end of the cool-down. */
MF_FN void grid_fire(const Grid *g, GridObject *o) {
    if (o->phase == GRID_CONVERTING) {
        for (uint32_t set = g->p->out_items[o->type]; set; set &= set - 1) {
            const int32_t i = MF_CTZ(set);
            grid_give_object(o, i, mf_min(g->c->recipe_out[o->type][i], 255 - o->item[i]));
        }
        o->phase = GRID_COOLING;
        o->due = g->head->step + g->c->cooldown[o->type];
        if (g->c->cooldown[o->type] == 0)
            grid_go_idle(g, o);
    } else {
        grid_go_idle(g, o);
    }
    grid_paint_object(g, o);
}

/* Fire what is due: an object's event changes nothing but that object. */
MF_FN void grid_events(const Grid *g, int32_t lane, int32_t lanes) {
    GridHead *head = g->head;
    int32_t next = GRID_NEVER;
    if (head->step < head->cache_next_due)
        return;
    for (int32_t j = lane; j < head->num_objects; j += lanes) {
        GridObject *o = g->objects + j;
        if (o->phase != GRID_IDLE && o->due <= head->step)
            grid_fire(g, o);
        if (o->phase != GRID_IDLE)
            next = mf_min(next, o->due);
    }
    if (lanes > 1) /* a GPU's thread may step an env alone */
        next = MF_LANES_MIN(next);
    if (lane == 0)
        head->cache_next_due = next;
}

#endif
