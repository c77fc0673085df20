"""An environment in C with much of what rules may do, for tests: several agents, two priorities, continuous actions, an
agent that leaves early, a state that outlives episodes, and functions and tables without MF_FN and MF_CONST."""

from __future__ import annotations

from pathlib import Path

PYTHON = """
from metta_fast import ActionSpec, CEnv, Leaf

env = CEnv(
    "herd",
    obs=Leaf((5,), "uint8"),
    action=ActionSpec("box", low=(-1.0, -1.0), high=(1.0, 1.0)),
    params={"field": 9.5, "wolves": True},
    stats=("level", "walked"),
    agents=None,
    lanes=LANES,
)
"""
RULES = r"""
#include "fmath.h"
#include "philox.h"

enum { HERD_MOST = 40 };
typedef struct {
    int32_t num_agents, max_steps, limit_is_terminal;
    float field;
    int32_t wolves;
    double half;
} herd_params;
typedef struct {
    double x[HERD_MOST], y[HERD_MOST], walked[HERD_MOST];
    int32_t episode, step, ended, level; /* level: of all episodes so far */
    uint16_t order[HERD_MOST];
    uint8_t gone[HERD_MOST];
    float reward[HERD_MOST];
} herd_state;
typedef float herd_action;
enum { herd_priorities = 2, herd_action_width = 2, herd_stats = 2 };
static const double herd_speed[3] = {0.1, 0.25, 0.7};

static double herd_way(int32_t level, double turn) { return herd_speed[level % 3] * mf_cos(turn); }

MF_FN void herd_prepare(herd_params *p) { p->half = p->field / 2.0; }
MF_FN int64_t herd_state_size(const herd_params *p) {
    (void)p;
    return (int64_t)(sizeof(herd_state) + 63) / 64 * 64;
}
MF_FN int32_t herd_num_agents(const herd_params *p) { return p->num_agents; }
MF_FN int32_t herd_obs_size(const herd_params *p) {
    (void)p;
    return 5;
}
MF_FN void herd_reset(const herd_params *p, uint8_t *state, uint64_t seed, uint32_t env, int32_t start_step,
                      int32_t lane, int32_t lanes) {
    herd_state *s = (herd_state *)state;
    mf_rng r;
    mf_rng_start(&r, seed, env, (uint32_t)(s->episode + 1), 0);
    MF_LANES_SYNC();
    mf_shuffled_lanes(&r, s->order, p->num_agents, lane, lanes);
    mf_rng_start(&r, seed, env, (uint32_t)(s->episode + 1), 1);
    for (int32_t k = 0; k < p->num_agents; k++) {
        const double x = mf_randbelow(&r, 1000) * p->field / 1000.0, y = mf_randbelow(&r, 1000) * p->field / 1000.0;
        if (k % lanes == lane)
            s->x[k] = x, s->y[k] = y, s->walked[k] = 0, s->gone[k] = 0, s->reward[k] = 0;
    }
    MF_LANES_SYNC();
    if (lane == 0)
        s->episode++, s->step = start_step, s->ended = 0;
}
MF_FN int32_t herd_pending(const herd_params *p, const uint8_t *state) {
    (void)p;
    return ((const herd_state *)state)->ended;
}
MF_FN void herd_begin(const herd_params *p, uint8_t *state, uint64_t seed, uint32_t env) {
    herd_state *s = (herd_state *)state;
    mf_rng r;
    mf_rng_start(&r, seed, env, (uint32_t)s->episode, 2 + (uint32_t)s->step++);
    for (int32_t k = 0; k < p->num_agents; k++)
        s->reward[k] = (float)mf_randbelow(&r, 100) / 1000.0f;
}
MF_FN void herd_act(const herd_params *p, uint8_t *state, int32_t priority, int32_t turn, const herd_action *actions) {
    herd_state *s = (herd_state *)state;
    const int32_t k = s->order[turn];
    if (s->gone[k] || (k & 1) != priority)
        return;
    const double dx = herd_way(s->level, actions[2 * k]), dy = actions[2 * k + 1] * mf_sin(s->x[k]);
    s->x[k] += dx, s->y[k] += dy;
    s->walked[k] += dx * dx + dy * dy;
    if (p->wolves && k != s->order[0] && s->x[s->order[0]] > s->x[k] + p->half)
        s->level++, s->gone[k] = 1;
    s->reward[k] += (float)(s->y[k] / (1.0 + s->walked[k]));
}
MF_FN void herd_finish(const herd_params *p, uint8_t *state, float *reward, uint8_t *terminal, uint8_t *truncation,
                       uint8_t *mask, float *stats) {
    herd_state *s = (herd_state *)state;
    const int32_t late = s->step >= p->max_steps, far = s->x[s->order[0]] > 2 * p->field;
    s->ended = late || far;
    for (int32_t k = 0; k < p->num_agents; k++) {
        const int32_t left = s->gone[k] == 1, was = s->gone[k] == 2;
        terminal[k] = (uint8_t)(!was && (far || left || (late && p->limit_is_terminal)));
        truncation[k] = (uint8_t)(!was && s->ended && !terminal[k]);
        mask[k] = (uint8_t)!(s->ended || left || was);
        reward[k] = was ? 0.0f : s->reward[k];
        s->gone[k] = (uint8_t)(left || was ? 2 : 0);
        stats[2 * k] = (float)s->level, stats[2 * k + 1] = (float)s->walked[k];
    }
}
MF_FN void herd_observe(const herd_params *p, const uint8_t *state, int32_t agent, uint8_t *out, int32_t lane,
                        int32_t lanes) {
    const herd_state *s = (const herd_state *)state;
    const int32_t seen[5] = {(int32_t)(s->x[agent] * 8), (int32_t)(s->y[agent] * 8), s->level, s->gone[agent], s->step};
    (void)p;
    for (int32_t k = lane; k < 5; k += lanes)
        out[k] = (uint8_t)seen[k];
}
"""


def write_herd(place: Path, *, lanes: bool = False) -> Path:
    """Writes the environment's folder; lanes: one that shares work among the lanes of a warp."""
    folder = place / "herd"
    folder.mkdir()
    (folder / "herd.py").write_text(PYTHON.replace("LANES", str(lanes)))
    (folder / "herd.h").write_text(RULES)
    return folder
