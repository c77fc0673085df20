"""Lists changes to PPO: loss, advantage, minibatches, schedules, steps, and the update in C."""

from tests.mutate.change import in_file

ADVANTAGE = "tests/ppo/test_advantage.py"
LEARNER = "tests/ppo/test_update_rules.py tests/ppo/test_learner.py tests/ppo/test_schedule.py"
LEARNER += " tests/ppo/test_clip_schedule.py tests/ppo/test_right_behaviour.py"
C_UPDATE = "tests/ppo/test_update_rules.py tests/ppo/test_mlp_update.py"

CHANGES = [
    *in_file(
        "metta_fast/algorithms/ppo/loss.py",
        "tests/ppo/test_loss.py tests/ppo/test_loss_reference.py",
        [
            (
                "torch.where(mask, logprob - batch.logprob, 0.0)",
                "logprob - batch.logprob",
                "masked rows have a ratio",
            ),
            (
                "torch.maximum(error, torch.where(mask, near",
                "torch.minimum(error, torch.where(mask, near",
                "the value's clip takes the smaller error",
            ),
            (
                "        advantage = advantage * batch.weight\n",
                "        pass\n",
                "weights of a replay are ignored",
            ),
            (
                "masked_mean(ratio - 1 - log_ratio, mask)",
                "masked_mean(-log_ratio, mask)",
                "the KL may be negative",
            ),
            ("mask.sum().clamp(min=1)", "mask.sum()", "a minibatch without rows is NaN"),
            (
                "centred - masked_mean(centred, mask)",
                "centred - centred.mean()",
                "masked rows shift the mean",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/advantage/advantage.h",
        ADVANTAGE,
        [
            (
                "has_final_obs ? terminal[n] : done",
                "terminal[n]",
                "a cut without a final observation bootstraps",
            ),
            ("rest = done ? 0.0f", "rest = terminal[n] ? 0.0f", "advantages leak over time limits"),
            (
                "rest *= mf_least(ratio[n], c_clip)",
                "rest *= mf_least(ratio[n], rho_clip)",
                "V-trace swaps its clips",
            ),
            ("mask[n] ? delta + rest : 0.0f", "delta + rest", "masked rows have an advantage"),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/advantage/on_tensors.py",
        ADVANTAGE,
        [
            ("torch.where(mask & ~done,", "torch.where(~done,", "masked rows pass advantages on"),
            (
                "terminal if inputs.has_final_obs else done",
                "terminal",
                "a cut without a final observation bootstraps",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/minibatch.py",
        LEARNER,
        [("take(self.rollout_value)", "take(b.value)", "the value is clipped against recomputed ones")],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/schedule.py",
        LEARNER,
        [
            ("kl > 2 * desired", "kl > desired", "the rate falls too soon"),
            ("(kl > 0) & (kl < desired / 2)", "kl < desired / 2", "the rate grows where no step was taken"),
            ("left(config.clip_schedule,", "left(config.schedule,", "the clip follows the rate's schedule"),
            (
                "return min(1.0, steps / last) if last > 0",
                "return steps / last if last > 0",
                "rates are negative after the end",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/gradients.py",
        LEARNER,
        [
            ("loss = loss / self.config.gradient_accumulation", "pass", "accumulated gradients are sums"),
            (
                "            self.gather.put(self.buffers.ratio, self.gather.rows(segments), result.ratio)\n",
                "            pass\n",
                "V-trace sees no ratios",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/step.py",
        "tests/ppo/test_target_kl.py " + LEARNER,
        [
            (
                "if self.config.max_grad_norm > 0:",
                "if self.config.max_grad_norm >= 0:",
                "max_grad_norm=0 stops learning",
            ),
            (
                "                self.clear()\n                return False",
                "                return False",
                "the next update begins with old gradients",
            ),
            ("done = self.sums - before", "done = self.sums", "the rate follows earlier passes"),
            ('{"rate": self.rate} if self.adapts else {}', "{}", "a resume forgets the adaptive rate"),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/learner.py",
        LEARNER,
        [
            (
                "            self.gather.rollout_value.copy_(self.buffers.value)\n",
                "            pass\n",
                "the value is clipped against zeros",
            ),
            ("        self.sums.zero_()\n", "", "losses add up over updates"),
            (
                "self._keyed(ORDER, context.epoch, number, *self.group.key)",
                "self._keyed(ORDER, context.epoch, *self.group.key)",
                "each pass has the same order",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/revalue.py",
        LEARNER,
        [("            state = output.state\n", "", "a core forgets its state between chunks")],
    ),
    *in_file(
        "metta_fast/algorithms/collecting.py",
        "tests/run/test_init_from.py",
        [
            (
                '.load_state_dict(state["reward_scale"])\n            self.reward_scale.restart()',
                '.load_state_dict(state["reward_scale"])',
                "a new run goes on with another's returns",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/ppo.py",
        LEARNER + " tests/run/test_init_from.py tests/ppo/test_normalize.py",
        [
            (
                "            self.buffers.ratio.fill_(1)\n",
                "            pass\n",
                "V-trace starts with old ratios",
            ),
            (
                "self._measures_again = False\n            normalizer.take(self.buffers)\n",
                "self._measures_again = False\n",
                "observations are never normalised",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/c/ppo_loss.h",
        C_UPDATE,
        [
            (
                "(value > old ? s->vf_clip : -s->vf_clip)",
                "(value < old ? s->vf_clip : -s->vf_clip)",
                "the value's clip is mirrored",
            ),
            (
                "error = (near - returns) * (near - returns), slope = 0;",
                "error = (near - returns) * (near - returns);",
                "a clipped value has a gradient",
            ),
            ("s->max_norm > 0 ?", "s->max_norm >= 0 ?", "max_grad_norm=0 stops learning"),
            (
                "sqrt(1 - pow(s->beta2, step))",
                "sqrt(1 - pow(s->beta1, step))",
                "Adam's second moment has the wrong correction",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/c/mlp_update_rows.h",
        C_UPDATE,
        [
            ("        if (u->from->rows.mask[rows[b]])\n", "", "masked rows are learned from"),
            (
                "value < -10.0f ? -10.0f : value > 10.0f ? 10.0f : value",
                "value < -10.0f ? -10.0f : value",
                "normalised observations are not clipped",
            ),
            ("raw > MF_MOST_LOG_STD ? MF_MOST_LOG_STD : raw", "raw", "log_std is not clamped"),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/c/mlp_update.h",
        "tests/ppo/test_target_kl.py " + C_UPDATE,
        [
            (
                "(raw > MF_MOST_LOG_STD && grad[j] < 0) || ",
                "",
                "log_std has a gradient that leads out of its bounds",
            ),
            (
                "            for (int i = 0; i < u->slots; i++)\n"
                "                memset(u->slot[i].grad, 0, sizeof(float) * u->floats);\n",
                "",
                "the next update begins with old gradients",
            ),
            (
                "if (s->target_kl >= 0 && kl > s->target_kl)",
                "if (s->target_kl > 0 && kl > 2 * s->target_kl)",
                "target_kl stops late",
            ),
        ],
    ),
    *in_file(
        "metta_fast/algorithms/ppo/c/mlp_update.py",
        C_UPDATE,
        [('["step"].fill_(steps + found[-1])', '["step"].fill_(steps)', "Adam's steps are not counted")],
    ),
]
