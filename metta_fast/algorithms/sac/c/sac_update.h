/* sac_update.h: whole updates of SAC or TD3 for plain networks, on the threads of a team.
 *
 *     rows: gather ─► target ─► critics forward and backward        tiles of the critics' weights: gradient ─► Adam ─► target
 *     rows: actor forward ─► critics ─► actor backward              tiles of the actor's weights, temperature
 *
 * Each result is computed by one thread, in an order that does not depend on their number. */
#ifndef MF_SAC_UPDATE_H
#define MF_SAC_UPDATE_H

#include "sac_state.h"

#if defined(__AVX512F__)
#define MF_LANES 16
#elif defined(__AVX__)
#define MF_LANES 8
#else
#define MF_LANES 4
#endif
#define MF_T(name) name##_plain
#define MF_TARGET
#include "sac_rows.h"
#undef MF_LANES
#undef MF_T
#undef MF_TARGET

#if defined(__x86_64__) && !defined(__AVX512F__)
#define MF_CHOOSE 1
#define MF_LANES 16
#define MF_T(name) name##_wide
#define MF_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#include "sac_rows.h"
#undef MF_LANES
#undef MF_T
#undef MF_TARGET
/* Whether the processor has the wider instruction set. */
static int mf_has_wide(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw");
}
#else
#define MF_CHOOSE 0
static int mf_has_wide(void) { return 0; }
#endif

enum { MF_CRITIC_ROWS, MF_CRITIC_STEP, MF_ACTOR_ROWS, MF_ACTOR_STEP, MF_SAC_JOBS };

/* Makes everything from a filled-in `rule`, `members`, `batch` and the networks' sizes, layers + 1 of each. threads: the
 * caller one of them. wide: 0 to use the plain instruction set. NULL: no memory. Start its team before use. */
static mf_sac *mf_sac_new(const mf_rule *rule, int members, int batch, const int *actor, int actor_layers, int actor_kind,
                          const int *critic, int critic_layers, int critic_kind, int threads, int wide, int64_t spin_ns) {
    mf_sac *u = calloc(1, sizeof *u);
    if (!u)
        return 0;
    u->rule = *rule, u->members = members, u->batch = batch, u->wide = wide && mf_has_wide();
    const int w = rule->width, features = critic[0] - w;
    u->rows = mf_up(batch, MF_FLOATS);
    u->ld_actor = mf_apart(actor[0]), u->ld_critic = mf_apart(critic[0]), u->ld_width = mf_apart(w);
    u->critic = calloc(members, sizeof(mf_mlp));
    int whole = u->critic != 0 && mf_mlp_make(&u->actor, actor, actor_layers, 1, actor_kind, u->rows, -1, !rule->soft);
    for (int e = 0; whole && e < members; e++)
        whole = mf_mlp_make(&u->critic[e], critic, critic_layers, 0, critic_kind, u->rows, features, 1);
    for (int i = 0; i < 2; i++)
        whole = (u->actor_x[i] = mf_floats(u->rows * u->ld_actor)) && whole;
    for (int i = 0; i < 3; i++)
        whole = (u->critic_x[i] = mf_floats(u->rows * u->ld_critic)) && whole;
    whole = (u->spread_grad = mf_floats(u->rows * u->ld_width)) && whole;
    whole = (u->action_grad = mf_floats(u->rows * u->ld_width)) && whole;
    whole = (u->slope = mf_floats(u->rows * u->ld_width)) && whole;
    whole = (u->density = mf_floats(u->rows)) && (u->next = mf_floats(u->rows)) && whole;
    whole = (u->q = mf_floats((long)u->rows * members)) && whole;
    whole = (u->loss = mf_floats(u->rows)) && (u->mean_q = mf_floats(u->rows)) && whole;
    if (rule->soft && !rule->state_std)
        u->log_std = (mf_tensor){.rows = 1, .columns = w};
#if MF_CHOOSE
    whole = whole && (u->wide ? list_all_wide(u) : list_all_plain(u));
#else
    whole = whole && list_all_plain(u);
#endif
    if (!whole || !mf_team_make(&u->team, MF_SAC_JOBS, threads - 1, spin_ns)) {
        mf_sac_free(u);
        return 0;
    }
    const int part = mf_up((u->rows + 2 * threads - 1) / (2 * threads), MF_FLOATS);
    u->part = part < 64 ? part : 64;
    const int parts = (u->rows + u->part - 1) / u->part;
#if MF_CHOOSE
    mf_team_job(&u->team, MF_CRITIC_ROWS, u->wide ? do_critic_rows_wide : do_critic_rows_plain, u, parts);
    mf_team_job(&u->team, MF_CRITIC_STEP, u->wide ? do_critic_step_wide : do_critic_step_plain, u, u->critic_tiles);
    mf_team_job(&u->team, MF_ACTOR_ROWS, u->wide ? do_actor_rows_wide : do_actor_rows_plain, u, parts);
    mf_team_job(&u->team, MF_ACTOR_STEP, u->wide ? do_actor_step_wide : do_actor_step_plain, u, u->actor_tiles);
#else
    mf_team_job(&u->team, MF_CRITIC_ROWS, do_critic_rows_plain, u, parts);
    mf_team_job(&u->team, MF_CRITIC_STEP, do_critic_step_plain, u, u->critic_tiles);
    mf_team_job(&u->team, MF_ACTOR_ROWS, do_actor_rows_plain, u, parts);
    mf_team_job(&u->team, MF_ACTOR_STEP, do_actor_step_plain, u, u->actor_tiles);
#endif
    return u;
}

/* Packs the present weights: before updates, once anything else may have changed them. */
static void mf_sac_pack(const mf_sac *u) {
#if MF_CHOOSE
    if (u->wide)
        pack_all_wide(u);
    else
#endif
        pack_all_plain(u);
}

/* Adam's factors for step number `step`, from 1. */
static mf_factors mf_factors_of(const mf_rates *r, double step, double scale, double follow) {
    return (mf_factors){.keep1 = 1 - r->beta1, .keep2 = 1 - r->beta2, .rate = r->rate / (1 - pow(r->beta1, step)),
                        .root = 1 / sqrt(1 - pow(r->beta2, step)), .epsilon = r->epsilon, .decay = r->beta2,
                        .scale = scale, .follow = follow};
}

static double mf_total(const float *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* Adapts log α to the batch's mean entropy: down α · (H − H̄). */
static void mf_adapt(mf_sac *u, const mf_rates *rates, double step, float entropy) {
    const mf_factors f = mf_factors_of(rates, step, 1, 0);
    const float g = u->alpha * (entropy - u->rule.target_entropy);
    *u->log_alpha_first += f.keep1 * (g - *u->log_alpha_first);
    *u->log_alpha_second = f.decay * *u->log_alpha_second + f.keep2 * g * g;
    *u->log_alpha -= f.rate * *u->log_alpha_first / (sqrtf(*u->log_alpha_second) * f.root + f.epsilon);
}

/* Does `count` updates and adds to sums [MF_SAC_SUMS]. first: the `count` of all updates before; steps: Adam's steps of
 * critics, actor and temperature so far, which are counted on. */
static void mf_sac_run(mf_sac *u, const mf_batch *batches, int count, int64_t first, const mf_rates *rates, double *steps,
                       double *sums) {
    for (int i = 0; i < count; i++) {
        const mf_batch *b = u->at = &batches[i];
        const double kept = mf_total(b->weight, u->batch), scale = 1 / (kept < 1 ? 1 : kept);
        u->alpha = u->log_alpha ? expf(*u->log_alpha) : 0;
        mf_team_do(&u->team, MF_CRITIC_ROWS);
        sums[MF_VALUE] += scale * mf_total(u->loss, u->batch), sums[MF_Q] += scale * mf_total(u->mean_q, u->batch);
        sums[MF_UPDATES]++;
        u->factors = mf_factors_of(rates, ++steps[0], scale, u->rule.tau);
        mf_team_do(&u->team, MF_CRITIC_STEP);
        if ((first + i + 1) % u->rule.delay)
            continue;
        mf_team_do(&u->team, MF_ACTOR_ROWS);
        u->factors = mf_factors_of(rates, ++steps[1], scale, u->rule.tau);
        mf_team_do(&u->team, MF_ACTOR_STEP);
        double entropy = 0;
        for (int r = 0; r < u->batch; r++)
            entropy -= (double)(b->weight[r] * u->density[r]);
        entropy *= scale;
        sums[MF_POLICY] += scale * mf_total(u->loss, u->batch), sums[MF_ENTROPY] += entropy;
        sums[MF_TEMPERATURE] += u->alpha, sums[MF_ACTOR_UPDATES]++;
        if (u->rule.adapts)
            mf_adapt(u, rates, ++steps[2], (float)entropy);
    }
}

#endif
