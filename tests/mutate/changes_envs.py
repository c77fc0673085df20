"""Lists changes to Python environments, action repeat and robots."""

from tests.mutate.change import in_file

PYTHON = "tests/envs/test_python_env.py tests/envs/test_python_spaces.py"
PYTHON += " tests/envs/test_python_states.py"
AGENTS = "tests/agents/test_lives.py"
PARALLEL = (
    "tests/agents/test_parallel.py tests/agents/test_different_spaces.py tests/agents/test_pettingzoo.py"
)
REPEAT = "tests/envs/test_repeat.py"
ROBOT = "tests/robot/test_factory.py tests/robot/test_batch.py tests/robot/test_faults.py"
ROBOT += " tests/robot/test_privileged.py"
ORACLE = "tests/robot/test_factory.py tests/robot/test_oracle.py tests/robot/test_batch.py"

CHANGES = [
    *in_file(
        "envs/actions/leaf.py",
        PYTHON,
        [
            (
                "self._start = space.start.reshape(-1)",
                "self._start = -space.start.reshape(-1)",
                "MultiDiscrete actions are shifted the wrong way",
            ),
            ("np.array([space.start], self.dtype)", "np.array([0])", "Discrete actions are not shifted"),
        ],
    ),
    *in_file(
        "envs/spaces.py",
        PYTHON,
        [
            ("len(self.nvec)) - start", "len(self.nvec))", "observed numbers are not shifted"),
            (
                "(index >= np.array(self.nvec, np.uint64)).any()",
                "(index > np.array(self.nvec, np.uint64)).any()",
                "a number past its space is accepted",
            ),
            (
                "index.astype(np.int64) + np.cumsum((0, *self.nvec[:-1]))",
                "index.astype(np.int64)",
                "one-hot parts overlap",
            ),
            ("        flat[...] = 0\n", "", "one-hot rows keep the last step's ones"),
        ],
    ),
    *in_file(
        "envs/python_slot.py",
        PYTHON,
        [
            (
                'self.held, obs = obs, info["final_obs"]',
                "self.held = obs",
                "a same-step end shows the next episode",
            ),
            (
                "        self.rows.reset[0] = True\n        self.ended = False\n        return 0.0",
                "        self.ended = False\n        return 0.0",
                "a new episode is not marked",
            ),
        ],
    ),
    *in_file(
        "envs/agents/arrays.py",
        PYTHON,
        [
            (
                "actions = self.decoder.decode(self.rows.action)",
                "actions = self.rows.action.copy()",
                "several agents' actions are not shifted",
            ),
        ],
    ),
    *in_file(
        "envs/agents/lives.py",
        AGENTS,
        [
            ("            rows.terminal[idle] = False\n", "", "an agent ends twice"),
            ("            rows.reward[idle] = 0.0\n", "", "an agent that has ended is still rewarded"),
            ("            rows.terminal[paused] = True\n", "", "an agent that goes does not end its episode"),
            ("idle | ended, out=rows.reset", "idle, out=rows.reset", "a same-step end begins no episode"),
            ("        self.acted[:] = False\n", "", "agents that are there at a reset begin no episode"),
            (
                'self.acted[:] = ~state["gone"].reshape(-1)',
                "self.acted[:] = True",
                "agents that had ended are back after a resume",
            ),
        ],
    ),
    *in_file(
        "envs/agents/lives.py",
        PARALLEL,
        [("        self.returns[ended] = 0.0\n", "", "a return goes on in the next episode")],
    ),
    *in_file(
        "envs/agents/parallel.py",
        PARALLEL,
        [
            ("                rows.terminal[agent] = True\n", "", "a cut without an observation bootstraps"),
            ("not (calm and self.steady)", "not calm", "flags of the step before stay"),
            ("            rows.mask[:] = self.present\n", "", "an agent that goes is still there"),
            ("                view[agent] = self.waiting\n", "", "who waits has a choice"),
            ("self.present) if there}", "self.present)}", "absent agents get actions"),
            ("view[agent] = own.legal", "pass", "choices that an agent lacks are legal"),
        ],
    ),
    *in_file(
        "envs/agents/joint_space.py",
        "tests/agents/test_different_spaces.py",
        [
            (
                "legal[starts[len(own.nvec) : heads]] = True",
                "pass",
                "a head that an agent lacks has no legal choice",
            ),
            ("low[inside] = np.minimum(low[inside], space.low)", "pass", "padded bounds are those of zeros"),
        ],
    ),
    *in_file(
        "envs/python_batch.py",
        PYTHON,
        [
            (
                '"held": [env.held for env in self.envs]',
                '"held": [None for env in self.envs]',
                "a same-step environment's held observation is not saved",
            ),
            (
                "np.random.SeedSequence(seed, spawn_key=(index,))",
                "np.random.SeedSequence(seed)",
                "all environments are alike",
            ),
            ("        rows.mask[:] = True\n", "", "rows after an end stay masked"),
        ],
    ),
    *in_file(
        "envs/python_env.py",
        PYTHON,
        [
            ("max_steps=limit,", "max_steps=0,", "the time limit is not known"),
        ],
    ),
    *in_file(
        "envs/native/repeat.h",
        REPEAT,
        [
            (
                "r->terminal[a] | r->truncation[a] | r->reset[a]",
                "r->terminal[a] | r->reset[a]",
                "a repetition runs over a time limit",
            ),
            (
                "r->terminal[a] | r->truncation[a] | r->reset[a]",
                "r->terminal[a] | r->truncation[a]",
                "the row that begins an episode is repeated",
            ),
            ("for (int64_t a = first; a < last; a++) r->sum[a] = 0;", "", "rewards add up over rows"),
        ],
    ),
    *in_file(
        "envs/repeat.py",
        REPEAT,
        [
            (
                "limit = -(-inner.spec.max_steps // repeat)",
                "limit = inner.spec.max_steps // repeat",
                "the time limit is rounded down",
            ),
            ("total += rows.reward", "total = rows.reward.astype(float)", "only the last reward counts"),
        ],
    ),
    *in_file(
        "envs/robot/physics.h",
        ROBOT,
        [
            (
                "const int limit = stable && r->step",
                "const int limit = r->step",
                "an unstable last step is truncated, too",
            ),
            ("b->summed[k] ? sums[k] + info[k] : info[k]", "sums[k] + info[k]", "positions are added up"),
            ("    r->warnings = 0;\n", "", "warnings add up over episodes"),
            (
                "b->task->contact_forces || b->privileged",
                "b->task->contact_forces",
                "the critic reads old forces",
            ),
            ("p->cfrc_ext + 6}", "p->cfrc_ext}", "the critic reads the world's forces"),
            ("        r->episode++;\n", "", "every episode starts alike"),
            ("(int32_t)(id * b->max_steps", "(int32_t)(i * b->max_steps", "each worker staggers from 0"),
            (
                "good &= isfinite((float)exact[k]) != 0;",
                "good &= isfinite(exact[k]) != 0;",
                "infinities reach the policy",
                "MuJoCo stops at numbers of 1e10, far below float32's largest",
            ),
            ("            exact[k] = row[k];\n", "            ;\n", "the exact observation stays not finite"),
        ],
    ),
    *in_file(
        "envs/robot/robot.h",
        "tests/robot/test_batch.py tests/robot/test_oracle.py",
        [
            ("((top << 26) | bottom)", "((top << 25) | bottom)", "noise covers half of its range"),
            ("(mf_real)(radius * cos(", "(mf_real)(0.5 * radius * cos(", "normal noise is half as wide"),
        ],
    ),
    *in_file(
        "envs/robot/tasks/ant.h",
        ORACLE,
        [("survive - (step.ctrl + contact)", "survive - step.ctrl", "contacts cost nothing")],
    ),
    *in_file(
        "envs/robot/tasks/hopper.h",
        ORACLE,
        [
            (
                "for (int32_t i = 2; i < p->nq + p->nv",
                "for (int32_t i = 3; i < p->nq + p->nv",
                "an angle may be anything",
            )
        ],
    ),
    *in_file(
        "envs/robot/_robot.pyx",
        "tests/robot/test_batch.py",
        [
            ('        self.sums[...] = state["sums"]\n', "", "an episode's sums restart at a resume"),
            (
                '"robots": self.robots.copy()',
                '"robots": self.robots',
                "a saved state changes with later steps",
            ),
        ],
    ),
    *in_file(
        "envs/robot/env.py",
        "tests/robot/test_factory.py",
        [
            (
                '            "limit_is_terminal": self.limit_is_terminal,\n            "frame_skip"',
                '            "frame_skip"',
                "workers truncate at the limit",
            ),
            ('            "on_unstable": self.on_unstable,\n', "", "workers go on after an unstable step"),
        ],
    ),
]
