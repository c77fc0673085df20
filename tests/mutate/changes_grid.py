"""Lists changes to the grid's rules and to the shell that steps native environments."""

from tests.mutate.change import in_file

RULES = "tests/envs/test_grid_limits.py tests/envs/test_grid_native.py tests/parity/test_grid_parity.py"
OBSERVED = "tests/parity/test_grid_observations.py tests/parity/test_grid_parity.py"
SHELL = "tests/envs/test_grid_native.py tests/parity/test_grid_parity.py tests/vector/test_contract.py"

CHANGES = [
    *in_file(
        "envs/grid/grid_rules.h",
        RULES,
        [
            (
                "col = a->col + (arg ? -dc : dc);",
                "col = a->col + dc;",
                "a step backward goes forward along a row",
            ),
            (
                "mf_min(mf_min(g->c->recipe_in[o->type][i], a->item[i]), 255 - o->item[i])",
                "mf_min(g->c->recipe_in[o->type][i], a->item[i])",
                "a converter's items overflow a byte",
            ),
            (
                "n = mf_min(o->item[i], g->c->item_cap[i] - a->item[i]);\n        grid_give_agent(g, a, i, n);\n"
                "        grid_give_object(o, i, -n);",
                "n = o->item[i];\n        grid_give_agent(g, a, i, n);\n        grid_give_object(o, i, -n);",
                "an agent gets more than it can carry",
            ),
            ("distance <= 3; distance++", "distance < 3; distance++", "an attack does not reach three cells"),
            ("if (target->frozen == 0)\n", "if (1)\n", "a frozen agent is robbed again"),
            (
                "        if (other->frozen == 0)\n            return 0;\n",
                "",
                "agents that can move are swapped away",
            ),
            (
                "    if ((uint32_t)arg > 8)\n        return 0;\n    *mark",
                "    if ((uint32_t)arg > 7)\n        return 0;\n    *mark",
                "the last colour and glyph are refused",
            ),
            ("        g.agents[k].reward = 0;\n", "", "rewards of earlier steps are given again"),
            (
                "        if (--a->frozen == 0)\n            grid_paint_agent(&g, a);\n",
                "        --a->frozen;\n",
                "an agent looks frozen after it thawed",
            ),
            (
                "g.head->step >= p->config.max_steps",
                "g.head->step > p->config.max_steps",
                "episodes are a step too long",
            ),
            ("reward[k] * (1.0f - c->group_reward_pct) +", "reward[k] +", "shared rewards are given twice"),
            (
                "(510u * (uint32_t)g->head->step + max)",
                "(510u * (uint32_t)g->head->step)",
                "completion is rounded down",
            ),
        ],
    ),
    *in_file(
        "envs/grid/grid_emit.h",
        OBSERVED,
        [
            (
                "mf_min((a->reward + 5) / 10, 255)",
                "mf_min(a->reward / 10, 255)",
                "the last reward is rounded down",
            ),
            (
                "count < GRID_TOKENS ? t.out",
                "count <= GRID_TOKENS ? t.out",
                "a token is written past an agent's row",
            ),
        ],
    ),
    *in_file(
        "envs/grid/grid_state.h",
        RULES,
        [
            (
                "- mf_min(weight * before, cap);",
                "- weight * before;",
                "giving an item up costs more than it gave",
            ),
            (
                "if (output >= g->c->max_output",
                "if (output > g->c->max_output",
                "a full converter starts once more",
            ),
            (
                "        if (g->c->cooldown[o->type] == 0)\n            grid_go_idle(g, o);\n",
                "",
                "a converter without a cool-down waits a step",
            ),
        ],
    ),
    *in_file(
        "envs/grid/grid_maps.h",
        "tests/parity/test_grid_maps.py tests/parity/test_grid_parity.py",
        [
            (
                "(r < c->num_agents % rooms)",
                "(r <= c->num_agents % rooms)",
                "agents are spread unevenly over rooms",
            )
        ],
    ),
    *in_file(
        "envs/native/shell.h",
        SHELL,
        [
            (
                "MF_NAME(reset_one)(b, i, 0);\n    else",
                "MF_NAME(reset_one)(b, i, 1);\n    else",
                "later episodes miss a step",
            ),
            ("(int32_t)(id * b->max_steps", "(int32_t)(i * b->max_steps", "each worker staggers from 0"),
        ],
    ),
    *in_file(
        "envs/native/rows.h",
        SHELL,
        [
            (
                "r->terminal[row + k] = r->truncation[row + k] = 0;",
                "r->terminal[row + k] = 0;",
                "an episode's first row is truncated",
            ),
            ("        r->reset[k] = 0;", "        r->reset[k] = r->reset[k];", "every row begins an episode"),
        ],
    ),
    *in_file(
        "envs/native/_batch.pyx",
        SHELL,
        [
            (
                '"states": self.states.copy()',
                '"states": self.states',
                "a saved state changes with later steps",
            ),
            ('        self.seed[0] = state["seed"]\n', "", "a loaded state goes on with another seed"),
        ],
    ),
]
