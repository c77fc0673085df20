"""Lists changes to what surrounds a training: configuration, metrics, evaluation, export."""

from tests.mutate.change import in_file

CONFIG = "tests/config/test_compose.py tests/config/test_resolve.py tests/config/test_sizes.py"
LOGGERS = "tests/run/test_loggers.py tests/run/test_metrics_file.py tests/run/test_run_writer.py"
EVALUATE = "tests/run/test_metrics_file.py tests/run/test_evaluate.py tests/run/test_load.py"

CHANGES = [
    *in_file(
        "metta_fast/algorithms/ppo/sizes.py",
        CONFIG,
        [
            ("fewer -= fewer % blocks if fewer >= blocks else 0", "pass", "blocks become uneven"),
            (
                "if minibatch % bptt == 0 and batch % minibatch == 0:",
                "if batch % minibatch == 0:",
                "a minibatch cuts segments",
            ),
            (
                "            if batch % (agents * bptt):\n",
                "            if False:\n",
                "a typed batch is cut without a word",
            ),
        ],
    ),
    *in_file(
        "metta_fast/vector/choose.py",
        CONFIG + " tests/vector/test_waiting.py",
        [
            (
                "few, usual = min(cores, num_envs),",
                "few, usual = cores,",
                "more workers than environments",
            ),
        ],
    ),
    *in_file(
        "metta_fast/resolve/resolve.py",
        CONFIG,
        [
            (
                "each = max(1, cores // vector.num_workers)",
                "each = cores",
                "threads of workers exceed the cores",
            ),
        ],
    ),
    *in_file(
        "metta_fast/resolve/memory_estimate.py",
        CONFIG + " tests/config/test_gpu.py",
        [
            (
                "copies = 1 if config.vector.zero_copy else 2",
                "copies = 1",
                "the second copy of rows is forgotten",
            ),
            ("min(machine.memory, machine.free)", "machine.memory", "other programs' memory counts as free"),
        ],
    ),
    *in_file(
        "metta_fast/resolve/compose.py",
        CONFIG,
        [
            (
                '{"hardware": default_hardware} | arguments.groups',
                'arguments.groups | {"hardware": default_hardware}',
                "hardware= is ignored",
            ),
            (
                '        if node == "???":\n',
                "        if False:\n",
                "a value that must be given is not asked for",
            ),
        ],
    ),
    *in_file(
        "metta_fast/resolve/config_files.py",
        CONFIG,
        [
            (
                "            if (CONFIGS / file.relative_to(folder)).exists():\n",
                "            if False:\n",
                "an own file with a built-in's name is ignored",
            ),
        ],
    ),
    *in_file(
        "metta_fast/metrics/loggers.py",
        LOGGERS,
        [
            ("value if math.isfinite(value) else None", "value", "NaN makes a line invalid"),
            (
                "        while self._rest:  # a nearly",
                "        if self._rest:  # a nearly",
                "half a line is written",
            ),
            ("or here > step:", "or here >= step:", "a resume drops the checkpoint's own row"),
            (
                "        aside = _copy_rows(file, end, path) if",
                "        aside = None if",
                "a resume deletes later rows",
            ),
            (
                "        self._waiting.update(row)\n",
                "        self._waiting = dict(row)\n",
                "merged rows lose names",
            ),
            (
                "self._add(step=resume_step + 1,",
                "self._add(step=resume_step,",
                "TensorBoard drops the checkpoint's row",
            ),
            (
                "(before + 1 for before in there)",
                "(before for before in there)",
                "TensorBoard reads sessions in disorder",
            ),
            (
                '            if not line.endswith(b"\\n"):\n                return\n',
                "",
                "a line in writing is read",
            ),
        ],
    ),
    *in_file(
        "metta_fast/metrics/text_log.py",
        LOGGERS,
        [
            (
                "        self._logger.propagate = self._before[1]\n",
                "",
                "a program's own log stays silent after a run",
            )
        ],
    ),
    *in_file(
        "metta_fast/inference/evaluate.py",
        EVALUATE,
        [
            ("return EVAL_SEED_BIT | seed", "return seed", "evaluation plays training's maps"),
            ("        policy.train(training)\n", "        pass\n", "training goes on in eval mode"),
        ],
    ),
    *in_file(
        "metta_fast/inference/read_observation.py",
        EVALUATE,
        [
            (
                "    if len(set(leads.values())) > 1:\n",
                "    if False:\n",
                "leaves of different agents are mixed",
            )
        ],
    ),
    *in_file(
        "metta_fast/inference/loaded_policy.py",
        EVALUATE,
        [
            (
                "            action = action + np.array(start, action.dtype)\n",
                "            pass\n",
                "actions are not shifted",
            ),
            (
                "        if n != self._agents:\n",
                "        if False:\n",
                "another number of agents is accepted",
            ),
        ],
    ),
    *in_file(
        "metta_fast/export/step.py",
        "tests/export/test_check.py",
        [
            (
                "            action = action + torch.tensor(self.start",
                "            action = action - torch.tensor(self.start",
                "exported actions are shifted the wrong way",
            ),
            (
                "set(policy.critic_leaves) <= set(policy.actor_leaves)",
                "True",
                "a value that cannot be computed is an output",
            ),
        ],
    ),
    *in_file(
        "metta_fast/export/check.py",
        "tests/export/test_check.py",
        [
            ("    if not distance <= TOLERANCE:\n", "    if distance > TOLERANCE:\n", "NaN passes the check"),
            (
                "right.shape != got.shape or right.dtype != got.dtype",
                "right.shape != got.shape",
                "another dtype passes the check",
            ),
            (
                '    _judge("action", _worse(step, params, got[:, :heads]) / 2 if fits else float("inf"), report)\n',
                "",
                "wrong actions pass the check",
            ),
        ],
    ),
]
