"""Lists changes to policies: heads, normaliser, cores, network."""

from tests.mutate.change import in_file

CHANGES = [
    *in_file(
        "metta_fast/policy/heads.py",
        "tests/policy/test_masks_and_resets.py tests/policy/test_heads.py",
        [
            (" & (cdf < total)).sum(", ").sum(", "noise near 1 chooses what is forbidden"),
            ("part | ~part.any(-1, keepdim=True)", "part", "a row without a choice is NaN"),
            (
                "finite = logp.masked_fill(logp == -torch.inf, 0.0)",
                "finite = logp",
                "forbidden choices make the entropy NaN",
            ),
            (
                "self._most - part.shape[-1]), value=-torch.inf)",
                "self._most - part.shape[-1]), value=0.0)",
                "small heads have choices that do not exist",
            ),
        ],
    ),
    *in_file(
        "metta_fast/policy/box_head.py",
        "tests/policy/test_box.py",
        [
            ("return mean, bounded_log_std(log_std)", "return mean, log_std", "the deviation has no bounds"),
            (
                "            each = each - log_slope(action)\n",
                "            pass\n",
                "squashing does not change the density",
            ),
            ("high / 2 - low / 2", "high - low", "actions are scaled twice as wide"),
            ("(0.5 + HALF_LOG_2PI)", "HALF_LOG_2PI", "the entropy is wrong"),
        ],
    ),
    *in_file(
        "metta_fast/policy/normalize.py",
        "tests/ppo/test_normalize.py",
        [
            (".clamp(-LIMIT, LIMIT)", "", "normalised numbers have no bounds"),
            ("torch.where(good, new, own)", "new", "one infinity spoils the moments for good"),
            ("torch.where(mask, x - new_mean, 0.0)", "(x - new_mean)", "masked rows widen the variance"),
        ],
    ),
    *in_file(
        "metta_fast/policy/cores.py",
        "tests/policy/test_core.py tests/policy/test_network.py",
        [
            ("c.masked_fill(restart, 0.0)\n", "c\n", "an LSTM's cell survives a reset"),
            ("dc = (dc * f[t]).masked_fill(reset[t], 0.0)", "dc = dc * f[t]", "gradients flow over a reset"),
        ],
    ),
    *in_file(
        "metta_fast/policy/cores.py",
        "tests/export/test_export.py -k plain_cores",
        [("f.sigmoid() * (c * keep)", "f.sigmoid() * c", "an exported LSTM's cell survives a reset")],
    ),
    *in_file(
        "metta_fast/policy/mingru/scan.h",
        "tests/policy/test_mingru.py",
        [
            ("past ? dh * (1.0f - z) : (mf_wide){0}", "dh * (1.0f - z)", "gradients flow over a reset"),
            (
                "reset[row] ? NULL : (t ? last : state) + b * size",
                "(t ? last : state) + b * size",
                "the state survives a reset",
            ),
        ],
    ),
    *in_file(
        "metta_fast/policy/network.py",
        "tests/policy/test_masks_and_resets.py tests/ppo/test_privileged.py",
        [
            (
                "state = torch.cat([first, second])",
                "state = torch.cat([second, first])",
                "actor and critic swap states",
            ),
            ("return self.core is not None", "return False", "resets reach the policy late"),
        ],
    ),
]
