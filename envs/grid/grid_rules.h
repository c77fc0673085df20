/* grid_rules.h: the rules of the grid world (MettaGrid's classic rules of mid 2025) for CPU and GPU.

     grid_state.h    configuration, state, converters
     grid_maps.h     the map builders
     grid_observe.h  tokens, dense, compact; grid_tokens.h: tokens by a GPU's warp
     grid_lanes.h    a step by the lanes of a GPU's warp
     grid_rules.h    this file: the nine actions, and a step:

     begin: clear rewards, step + 1, converter events, shuffle the agents
     act:   priority 1 (attack), then priority 0 (all else), each over the shuffled order
     finish: time limit, rewards, group sharing, statistics

   The contract is in envs/native/contract.h. */
#ifndef GRID_RULES_H
#define GRID_RULES_H

#include "grid_maps.h"
#include "grid_observe.h"
#include "grid_state.h"

/* ---- actions: each returns 1 if it succeeded ---- */

/* 0 forward, 1 backward: into an empty cell, keeping the orientation. */
MF_FN int32_t grid_move(const Grid *g, GridAgent *a, int32_t arg) {
    int32_t dr, dc;
    if ((uint32_t)arg > 1)
        return 0;
    grid_facing(a, &dr, &dc);
    const int32_t row = a->row + (arg ? -dr : dr), col = a->col + (arg ? -dc : dc);
    if (!grid_on_map(g, row, col) || *grid_cell(g, row, col) != 0)
        return 0;
    grid_exchange(g, a->row, a->col, row, col);
    a->row = (uint8_t)row, a->col = (uint8_t)col;
    a->stat[GRID_STAT_MOVES]++;
    return 1;
}

MF_FN int32_t grid_rotate(const Grid *g, GridAgent *a, int32_t arg) {
    if ((uint32_t)arg > GRID_RIGHT)
        return 0;
    a->orientation = (uint8_t)arg;
    grid_paint_agent(g, a);
    return 1;
}

/* What the agent faces: a cell's value, 0 off the map. */
MF_FN int32_t grid_faced(const Grid *g, const GridAgent *a) {
    int32_t dr, dc;
    grid_facing(a, &dr, &dc);
    return grid_on_map(g, a->row + dr, a->col + dc) ? *grid_cell(g, a->row + dr, a->col + dc) : 0;
}

/* The converter that an agent faces, or null. */
MF_FN GridObject *grid_faced_object(const Grid *g, const GridAgent *a) {
    const int32_t cell = grid_faced(g, a);
    return cell < 2 + g->c->num_agents ? 0 : grid_object(g, cell);
}

/* After a put or a get of `total` items (returned as 0 or 1): the converter may start, and both look different. */
MF_FN int32_t grid_after_trade(const Grid *g, GridAgent *a, GridObject *o, int32_t total) {
    if (total == 0)
        return 0;
    grid_start(g, o);
    grid_paint_object(g, o);
    grid_paint_agent(g, a);
    return 1;
}

/* Give one recipe's worth of each input, as far as held and as it fits. */
MF_FN int32_t grid_put_items(const Grid *g, GridAgent *a) {
    GridObject *o = grid_faced_object(g, a);
    int32_t total = 0;
    if (!o)
        return 0;
    for (uint32_t set = g->p->in_items[o->type] & a->cache_items; set; set &= set - 1) {
        const int32_t i = MF_CTZ(set);
        const int32_t n = mf_min(mf_min(g->c->recipe_in[o->type][i], a->item[i]), 255 - o->item[i]);
        grid_give_agent(g, a, i, -n);
        grid_give_object(o, i, n);
        if (i == GRID_HEART)
            a->stat[GRID_STAT_HEARTS] -= n;
        total += n;
    }
    a->stat[GRID_STAT_PUT] += total;
    return grid_after_trade(g, a, o, total);
}

/* Take every output that fits, also while the converter is busy. */
MF_FN int32_t grid_get_items(const Grid *g, GridAgent *a) {
    GridObject *o = grid_faced_object(g, a);
    int32_t total = 0;
    if (!o)
        return 0;
    for (uint32_t set = g->p->out_items[o->type] & o->cache_items; set; set &= set - 1) {
        const int32_t i = MF_CTZ(set), n = mf_min(o->item[i], g->c->item_cap[i] - a->item[i]);
        grid_give_agent(g, a, i, n);
        grid_give_object(o, i, -n);
        if (i < GRID_BATTERY)
            a->stat[GRID_STAT_ORE] += n;
        else if (i < GRID_HEART)
            a->stat[GRID_STAT_BATTERY] += n;
        else if (i == GRID_HEART)
            a->stat[GRID_STAT_HEARTS] += n;
        total += n;
    }
    return grid_after_trade(g, a, o, total);
}

/* The agent that an attack with this argument meets: the arg-th, or the last, of those in the 3×3 cells ahead,
   by distance 1 to 3, columns centre, left, right. Null if there is none. */
MF_FN GridAgent *grid_target(const Grid *g, const GridAgent *a, int32_t arg) {
    GridAgent *target = 0;
    int32_t dr, dc, found = 0;
    grid_facing(a, &dr, &dc);
    for (int32_t distance = 1; distance <= 3; distance++)
        for (int32_t column = 0; column < 3; column++) {
            const int32_t left = (column == 1) - (column == 2);
            const int32_t row = a->row + distance * dr - left * dc, col = a->col + distance * dc + left * dr;
            if (!grid_on_map(g, row, col) || !grid_is_agent(g, *grid_cell(g, row, col)))
                continue;
            target = g->agents + (*grid_cell(g, row, col) - 2);
            if (found++ == arg)
                return target;
        }
    return target;
}

/* All that the attacker can carry. */
MF_FN void grid_rob(const Grid *g, GridAgent *a, GridAgent *target) {
    for (uint32_t set = target->cache_items; set; set &= set - 1) {
        const int32_t i = MF_CTZ(set), n = mf_min(target->item[i], g->c->item_cap[i] - a->item[i]);
        grid_give_agent(g, target, i, -n);
        grid_give_agent(g, a, i, n);
        a->stat[GRID_STAT_STOLEN] += n;
    }
}

MF_FN int32_t grid_attack(const Grid *g, GridAgent *a, int32_t arg) {
    if ((uint32_t)arg > 8 || a->item[GRID_LASER] == 0)
        return 0;
    GridAgent *target = grid_target(g, a, arg);
    if (!target)
        return 0;
    if (target->item[GRID_ARMOR] > 0) {
        grid_give_agent(g, target, GRID_ARMOR, -1);
    } else {
        if (target->frozen == 0)
            grid_rob(g, a, target);
        target->frozen = (uint8_t)g->c->freeze_duration;
    }
    grid_give_agent(g, a, GRID_LASER, -1);
    a->stat[GRID_STAT_HITS]++;
    grid_paint_agent(g, target);
    grid_paint_agent(g, a);
    return 1;
}

/* Change places with a frozen agent or a block. */
MF_FN int32_t grid_swap(const Grid *g, GridAgent *a) {
    const int32_t cell = grid_faced(g, a);
    const int32_t row = a->row, col = a->col;
    uint8_t *other_row, *other_col;
    if (cell < 2)
        return 0;
    if (grid_is_agent(g, cell)) {
        GridAgent *other = g->agents + (cell - 2);
        if (other->frozen == 0)
            return 0;
        other_row = &other->row, other_col = &other->col;
    } else {
        GridObject *other = grid_object(g, cell);
        if (other->type != GRID_BLOCK)
            return 0;
        other_row = &other->row, other_col = &other->col;
    }
    grid_exchange(g, row, col, *other_row, *other_col);
    a->row = *other_row, a->col = *other_col;
    *other_row = (uint8_t)row, *other_col = (uint8_t)col;
    return 1;
}

MF_FN int32_t grid_mark(uint8_t *mark, int32_t arg) {
    if ((uint32_t)arg > 8)
        return 0;
    *mark = (uint8_t)arg;
    return 1;
}

MF_FN int32_t grid_do(const Grid *g, GridAgent *a, int32_t action, int32_t arg) {
    if ((uint32_t)action >= GRID_ACTIONS || !(g->c->actions_enabled >> action & 1))
        return 0;
    switch (action) {
    case GRID_MOVE: return grid_move(g, a, arg);
    case GRID_ROTATE: return grid_rotate(g, a, arg);
    case GRID_PUT: return grid_put_items(g, a);
    case GRID_GET: return grid_get_items(g, a);
    case GRID_ATTACK: return grid_attack(g, a, arg);
    case GRID_SWAP: return grid_swap(g, a);
    case GRID_COLOR: return grid_mark(&a->color, arg);
    case GRID_GLYPH: return grid_mark(&a->glyph, arg);
    default: return 1; /* noop */
    }
}

/* ---- the contract ---- */

MF_FN void grid_set_completion(const Grid *g) {
    const uint32_t max = (uint32_t)g->c->max_steps; /* at most 4 000 000 */
    g->head->cache_completion = (int32_t)((510u * (uint32_t)g->head->step + max) / (2u * max));
}

/* What all converters hold and do at the start of an episode. */
MF_FN void grid_stock(const Grid *g, int32_t lane, int32_t lanes) {
    int32_t next = GRID_NEVER;
    for (int32_t j = lane; j < g->head->num_objects; j += lanes) {
        GridObject *o = g->objects + j;
        for (uint32_t set = g->p->out_items[o->type]; set; set &= set - 1)
            grid_give_object(o, MF_CTZ(set), g->c->initial[o->type]);
        next = mf_min(next, grid_try_start(g, o));
    }
    next = MF_LANES_MIN(next);
    if (lane == 0)
        g->head->cache_next_due = next;
}

MF_FN void grid_reset(const grid_params *p, uint8_t *state, uint64_t seed, uint32_t env, int32_t start_step,
                      int32_t lane, int32_t lanes) {
    const Grid g = grid_open(p, state);
    const uint32_t lifetime = g.head->lifetime + 1, episode = g.head->lifetime ? g.head->episode + 1 : 0;
    MF_LANES_SYNC();
    mf_zero(state, 0, p->size, lane, lanes);
    MF_LANES_SYNC();
    if (lane == 0) {
        g.head->lifetime = lifetime;
        g.head->episode = episode;
        g.head->step = start_step;
        grid_set_completion(&g);
    }
    grid_build(&g, seed, env, episode, lane, lanes);
    grid_stock(&g, lane, lanes);
    grid_paint_all(&g, lane, lanes);
    MF_LANES_SYNC();
}

MF_FN void grid_renew(const grid_params *p, uint8_t *state, const uint8_t *next, int32_t lane, int32_t lanes) {
    GridHead *head = grid_open(p, state).head;
    const uint32_t lifetime = head->lifetime + 1;
    MF_LANES_SYNC();
    mf_copy(state, next, p->size, lane, lanes);
    MF_LANES_SYNC();
    if (lane == 0)
        head->lifetime = lifetime;
    MF_LANES_SYNC();
}

MF_FN int32_t grid_pending(const grid_params *p, uint8_t *state) { return grid_open(p, state).head->pending_reset; }

MF_FN void grid_begin(const grid_params *p, uint8_t *state, uint64_t seed, uint32_t env) {
    const Grid g = grid_open(p, state);
    mf_rng rng;
    g.head->lifetime++;
    g.head->step++;
    grid_set_completion(&g);
    for (int32_t k = 0; k < p->config.num_agents; k++) {
        g.agents[k].reward = 0;
        g.order[k] = (uint16_t)k;
    }
    grid_events(&g, 0, 1);
    mf_rng_start(&rng, seed, env, g.head->lifetime, GRID_STREAM_ORDER);
    mf_shuffle(&rng, g.order, p->config.num_agents);
}

MF_FN int32_t grid_byte(int32_t value) { return value < 0 ? 0 : mf_min(value, 255); }

/* The turn-th agent of the order, if the action it chose has this priority. A frozen one loses its turn. */
MF_FN void grid_act(const grid_params *p, uint8_t *state, int32_t priority, int32_t turn, const grid_action *actions) {
    const Grid g = grid_open(p, state);
    const int32_t k = g.order[turn], action = actions[2 * k], arg = actions[2 * k + 1];
    GridAgent *a = g.agents + k;
    if ((action == GRID_ATTACK) != priority)
        return;
    a->last_action = (uint8_t)grid_byte(action), a->last_arg = (uint8_t)grid_byte(arg);
    if (a->frozen > 0) {
        if (--a->frozen == 0)
            grid_paint_agent(&g, a);
        a->stat[GRID_STAT_FAILED]++;
    } else if (!grid_do(&g, a, action, arg)) {
        a->stat[GRID_STAT_FAILED]++;
    }
}

MF_FN float grid_reward(const GridAgent *a) { return (float)a->reward * 0.001f; }

/* r(1-p) + p * mean over the group, summed in agent order. */
MF_FN void grid_share(const Grid *g, float *reward) {
    const GridConfig *c = g->c;
    const int32_t groups = c->group_by_room ? c->rooms_y * c->rooms_x : 1;
    for (int32_t group = 0; group < groups; group++) {
        float sum = 0.0f;
        int32_t members = 0;
        for (int32_t k = 0; k < c->num_agents; k++)
            if (g->agents[k].group == group) {
                sum += reward[k];
                members++;
            }
        const float mean = members ? sum / (float)members : 0.0f;
        for (int32_t k = 0; k < c->num_agents; k++)
            if (g->agents[k].group == group)
                reward[k] = reward[k] * (1.0f - c->group_reward_pct) + c->group_reward_pct * mean;
    }
}

MF_FN void grid_finish(const grid_params *p, uint8_t *state, float *reward, uint8_t *terminal, uint8_t *truncation,
                       uint8_t *mask, float *stats) {
    const Grid g = grid_open(p, state);
    const int32_t done = g.head->step >= p->config.max_steps, terminates = p->config.limit_is_terminal != 0;
    g.head->pending_reset = done;
    for (int32_t k = 0; k < p->config.num_agents; k++) {
        reward[k] = grid_reward(g.agents + k);
        terminal[k] = done && terminates;
        truncation[k] = done && !terminates;
        mask[k] = !done;
        for (int32_t i = 0; done && i < grid_stats; i++)
            stats[grid_stats * k + i] = (float)g.agents[k].stat[i];
    }
    if (p->config.group_reward_pct > 0.0f)
        grid_share(&g, reward);
}

#if defined(__CUDACC__) || defined(__HIPCC__)
#include "grid_lanes.h"
#endif

#endif
