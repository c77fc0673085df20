/* grid_lanes.h: a step by the lanes of a GPU's warp, with the results of grid_begin, grid_act for all turns, and
   grid_finish.

   Turns count one after another, but most have nothing to do with each other. A lane has a turn, and takes it as soon
   as no earlier one that is still to come reaches a cell that it reaches:

     own   the agent's cell, where the turn may change what others find there
     aim   the other cell that it reads or changes

   Both are looked up anew after each round. A turn can change them for another only by moving that agent (a swap with a
   frozen one), and then reaches its cell itself. A round takes at least the first turn that is left.

   Attacks are one after another if one of the attackers has a laser, else they all fail. */
#ifndef GRID_LANES_H
#define GRID_LANES_H

#define MF_ADVANCE

/* What a turn reaches, not an attack's: (own + 1) | (aim + 1) << 16 as row * width + col, 0 for none. */
MF_FN uint32_t grid_reach(const Grid *g, const GridAgent *a, int32_t action, int32_t arg) {
    const uint32_t own = (uint32_t)(a->row * g->c->width + a->col + 1);
    int32_t dr, dc;
    if (a->frozen > 0)
        return own;
    if (action != GRID_MOVE && action != GRID_PUT && action != GRID_GET && action != GRID_SWAP)
        return 0;
    grid_facing(a, &dr, &dc);
    const int32_t back = action == GRID_MOVE && arg == 1;
    const int32_t row = a->row + (back ? -dr : dr), col = a->col + (back ? -dc : dc);
    const int32_t cell = grid_on_map(g, row, col) ? *grid_cell(g, row, col) : 1;
    /* A wall stays one. Into an empty cell none but an agent that is not frozen can come, out of one that is not empty
       such an agent alone: nothing to trade or swap with, no room for a move. */
    if (action == GRID_MOVE ? cell != 0 && !grid_is_agent(g, cell) : cell < 2)
        return 0;
    const uint32_t aim = (uint32_t)(row * g->c->width + col + 1);
    return (action == GRID_MOVE || action == GRID_SWAP ? own : 0) | aim << 16;
}

/* 1: a turn must wait for an earlier one. */
MF_FN int32_t grid_meet(uint32_t earlier, uint32_t later) {
    const uint32_t own = later & 0xffff, aim = later >> 16;
    return (own && own == earlier >> 16) || (aim && (aim == earlier >> 16 || aim == (earlier & 0xffff)));
}

/* The turns of a priority, those from `first` on, a lane each. */
MF_FN void grid_act_lanes(const grid_params *p, uint8_t *state, int32_t first, const grid_action *actions,
                          int32_t lane) {
    const Grid g = grid_open(p, state);
    const int32_t turn = first + lane, has_turn = turn < p->config.num_agents;
    const int32_t k = g.order[has_turn ? turn : first], action = actions[2 * k], arg = actions[2 * k + 1];
    const GridAgent *a = g.agents + k;
    int32_t waits = has_turn && action != GRID_ATTACK;
    for (uint32_t left = MF_LANES_VOTE(waits); left; left = MF_LANES_VOTE(waits)) {
        const uint32_t reach = waits ? grid_reach(&g, a, action, arg) : 0;
        int32_t ready = waits;
        for (uint32_t set = MF_LANES_VOTE(reach); set; set &= set - 1) {
            const int32_t other = MF_CTZ(set);
            const uint32_t theirs = (uint32_t)MF_LANES_TAKE((int32_t)reach, other);
            ready = ready && !(other < lane && grid_meet(theirs, reach));
        }
        if (ready)
            grid_act(p, state, 0, turn, actions);
        waits = waits && !ready;
        MF_LANES_SYNC();
    }
}

MF_FN void grid_attack_lanes(const grid_params *p, uint8_t *state, int32_t first, const grid_action *actions,
                             int32_t lane) {
    const Grid g = grid_open(p, state);
    const int32_t turn = first + lane, has_turn = turn < p->config.num_agents;
    const int32_t k = g.order[has_turn ? turn : first];
    const int32_t attacks = has_turn && actions[2 * k] == GRID_ATTACK;
    const uint32_t armed = MF_LANES_VOTE(attacks && g.agents[k].item[GRID_LASER] > 0);
    for (uint32_t left = MF_LANES_VOTE(attacks); left;) {
        const uint32_t now = armed ? left & (0u - left) : left;
        if (now >> lane & 1)
            grid_act(p, state, 1, turn, actions);
        left &= ~now;
        MF_LANES_SYNC();
    }
}

/* As grid_share, for one agent. */
MF_FN float grid_shared_reward(const Grid *g, int32_t k) {
    float sum = 0.0f;
    int32_t members = 0;
    for (int32_t j = 0; j < g->c->num_agents; j++)
        if (g->agents[j].group == g->agents[k].group) {
            sum += grid_reward(g->agents + j);
            members++;
        }
    const float mean = sum / (float)members;
    return grid_reward(g->agents + k) * (1.0f - g->c->group_reward_pct) + g->c->group_reward_pct * mean;
}

MF_FN void grid_advance(const grid_params *p, uint8_t *state, uint64_t seed, uint32_t env, const grid_action *actions,
                        float *reward, uint8_t *terminal, uint8_t *truncation, uint8_t *mask, float *stats,
                        int32_t lane, int32_t lanes) {
    const Grid g = grid_open(p, state);
    const int32_t agents = p->config.num_agents, terminates = p->config.limit_is_terminal != 0;
    const uint32_t lifetime = g.head->lifetime + 1;
    const int32_t step = g.head->step + 1, done = step >= p->config.max_steps;
    mf_rng rng;
    MF_LANES_SYNC();
    if (lane == 0) {
        g.head->lifetime = lifetime;
        g.head->step = step;
        g.head->pending_reset = done;
        grid_set_completion(&g);
    }
    for (int32_t k = lane; k < agents; k += lanes)
        g.agents[k].reward = 0;
    mf_rng_start(&rng, seed, env, lifetime, GRID_STREAM_ORDER);
    mf_shuffled_lanes(&rng, g.order, agents, lane, lanes);
    MF_LANES_SYNC();
    grid_events(&g, lane, lanes);
    MF_LANES_SYNC();
    for (int32_t first = 0; first < agents; first += lanes)
        grid_attack_lanes(p, state, first, actions, lane);
    for (int32_t first = 0; first < agents; first += lanes)
        grid_act_lanes(p, state, first, actions, lane);
    for (int32_t k = lane; k < agents; k += lanes) {
        reward[k] = p->config.group_reward_pct > 0.0f ? grid_shared_reward(&g, k) : grid_reward(g.agents + k);
        terminal[k] = done && terminates;
        truncation[k] = done && !terminates;
        mask[k] = !done;
        for (int32_t i = 0; done && i < grid_stats; i++)
            stats[grid_stats * k + i] = (float)g.agents[k].stat[i];
    }
}

#endif
