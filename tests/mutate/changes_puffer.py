"""Lists changes to PufferEnvs, and to PufferLib's interface."""

from tests.mutate.change import in_file

# Without the tests that need the package pufferlib: a copy for a change need not have it.
NATIVE = "tests/envs/test_pufferlib.py"
VECTOR = "tests/compat/test_puffer_vector.py"
EMULATION = "tests/compat/test_puffer_emulation.py"

CHANGES = [
    *in_file(
        "envs/puffer/placed.py",
        NATIVE,
        [
            ("        self.copy_out()\n        return listed(result[4])", "        return listed(result[4])",
             "arrays of its own are not copied after a step"),
            ("        if self.done:\n            return self.reset(None)\n", "", "a done environment is stepped on"),
            ("            if first != second:\n", "            if False:\n", "environments of other sizes are taken"),
        ],
    ),
    *in_file(
        "envs/puffer/native.py",
        NATIVE,
        [
            ('        rows.mask[:] = self._flags["masks"]\n', "        rows.mask[:] = True\n", "an absent agent acts"),
            ("            if env.done or env.emulated:", "            if False:", "a last observation is trained on"),
            ("        if self._decoder is None:\n            self._actions = rows",
             "        if False:\n            self._actions = rows", "actions do not reach the environment"),
            ("            self._home.action[:] = self.rows.action", "            pass", "moved actions are lost"),
            ("env_seed(seed, self.first_env + i)", "env_seed(seed, i)", "workers share seeds"),
        ],
    ),
    *in_file(
        "envs/puffer/infos.py",
        NATIVE,
        [
            ("count + value.size", "count + 1", "a list of numbers counts as one"),
            ("        found, self._sums = self._sums, {}", "        found = self._sums", "sums are told twice"),
        ],
    ),
    *in_file(
        "metta_fast/compat/pufferlib/emulated_spaces.py",
        EMULATION,
        [
            ("align=True", "align=False", "the struct is packed"),
            ("if len(kinds) == 1 else", "if len(kinds) < 3 else", "two dtypes are taken for one"),
        ],
    ),
    *in_file(
        "metta_fast/compat/pufferlib/vector_base.py",
        VECTOR,
        [
            ("        if not self.sync_traj:\n", "        if True:\n", "batches come out of turn"),
            ("(self._next + 1) % len(self._vec.blocks)", "0", "one batch comes for ever"),
        ],
    ),
    *in_file(
        "metta_fast/compat/pufferlib/batch.py",
        VECTOR,
        [
            ("else seed + self.first_env + i", "else seed + i", "workers reset with the same seeds"),
            ("        self._notify[:] = 0", "        pass", "notify is repeated"),
        ],
    ),
    *in_file(
        "metta_fast/compat/pufferlib/info_box.py",
        VECTOR,
        [("    if not infos:\n        head[0] = 0\n        return\n", "    if not infos:\n        return\n",
          "infos are told twice")],
    ),
]  # fmt: skip
