"""Lists changes to the rollout: copies, statistics, checks, reward scale, random streams."""

from tests.mutate.change import in_file

ROLLOUT = "tests/rollout/test_rollout_state.py tests/ppo/test_rollout.py tests/ppo/test_cpu_rollout.py"
EPISODES = "tests/ppo/test_episode_stats.py tests/ppo/test_right_behaviour.py"

CHANGES = [
    *in_file(
        "metta_fast/rollout/rollout.py",
        ROLLOUT,
        [
            (
                "own.copy_(state[:, block.start : block.stop])",
                "own.copy_(state[:, : block.size])",
                "every block resumes with the first one's state",
            ),
        ],
    ),
    *in_file(
        "metta_fast/buffers/rollout.py",
        ROLLOUT + " tests/ppo/test_frame_stack.py",
        [
            (
                "if t % self.bptt_horizon or not",
                "if t or not",
                "later segments start from an old state",
            ),
            (
                "items() if t == 0 else ()",
                "items() if t < 0 else ()",
                "the frames before a rollout are lost",
            ),
            (
                "& (rows >= 0)",
                "& (rows > 0)",
                "frames stay that a reset in a rollout's first row removes",
            ),
        ],
    ),
    *in_file(
        "metta_fast/buffers/frames.py",
        "tests/ppo/test_frame_stack.py",
        [
            (
                "gone = torch.cat([begun[1:], begun[:1] * 0]) > 0",
                "gone = begun > 0",
                "the first frame of an episode is lost",
            ),
        ],
    ),
    *in_file(
        "metta_fast/rollout/transfer.py",
        ROLLOUT,
        [
            ("        self._truncation[t, at] = rows.truncation\n", "", "truncations are lost"),
            (
                "(rows.terminal.any() or rows.truncation.any())",
                "rows.terminal.any()",
                "statistics of cut episodes are lost",
            ),
            ("        self._mask[t, at] = rows.mask\n", "", "masks are lost"),
        ],
    ),
    *in_file(
        "metta_fast/rollout/base.py",
        ROLLOUT,
        [
            ("self._keyed(NOISE, epoch)", "self._keyed(NOISE, 0)", "each epoch draws the same noise"),
            ("env_seed(self.seed, epoch)", "self.seed", "a resume replays the first episodes"),
        ],
    ),
    *in_file(
        "metta_fast/rollout/episode_stats.py",
        EPISODES,
        [
            (
                "counted = done & ~(self.left_out & (number == 1))",
                "counted = done",
                "staggered first episodes count",
            ),
            ("        self.left_out &= ~ended\n", "", "later episodes are left out, too"),
            (
                "(buffers.terminal | buffers.truncation) & mask",
                "(buffers.terminal | buffers.truncation)",
                "masked rows end episodes",
            ),
            (
                "torch.where(mask, buffers.reward, 0).double()",
                "buffers.reward.double()",
                "masked rewards count",
            ),
        ],
    ),
    *in_file(
        "metta_fast/rollout/finite_checks.py",
        "tests/rollout/test_rollout_state.py tests/ppo/test_guard.py",
        [
            (
                "low.float().isfinite() & high.float().isfinite()",
                "low.float().isfinite() | high.float().isfinite()",
                "+∞ beside numbers is not found",
            ),
            (
                "for head in rows], -1).all(-1)",
                "for head in rows], -1).any(-1)",
                "a head without a choice is not found",
            ),
        ],
    ),
    *in_file(
        "metta_fast/rollout/reward_scale.py",
        "tests/ppo/test_reward_scale.py tests/run/test_init_from.py",
        [
            (
                "(~(buffers.terminal | buffers.truncation))",
                "(~buffers.terminal)",
                "returns run over a time limit",
            ),
            ("torch.where(mask, buffers.reward, 0.0)", "buffers.reward", "masked rewards scale the others"),
            ("        self.discounted.zero_()\n", "", "returns of other episodes go on"),
        ],
    ),
    *in_file(
        "metta_fast/distributed/moments.py",
        "tests/ppo/test_reward_scale.py tests/ppo/test_normalize.py",
        [
            (" + delta.square() * count * more / total", "", "the variance forgets that means differ"),
            (
                "mean + delta * more / total",
                "mean + delta * count / total",
                "the mean weighs old rows as new ones",
            ),
        ],
    ),
    *in_file(
        "metta_fast/runtime/keyed_random.py",
        "tests/rollout/test_rollout_state.py tests/ppo/test_rollout.py",
        [
            (
                "mix(seed, ENVS, epoch) & ~EVAL_SEED_BIT",
                "mix(seed, ENVS, epoch)",
                "training sees evaluation's maps",
            )
        ],
    ),
    *in_file(
        "metta_fast/runtime/interval.py",
        "tests/run/test_interval.py",
        [
            (
                ">= self._epochs and waited >= self._min_s",
                ">= self._epochs or waited >= self._min_s",
                "too often",
            ),
            ("waited >= self._max_s", "waited > 2 * self._max_s", "too late"),
        ],
    ),
]
