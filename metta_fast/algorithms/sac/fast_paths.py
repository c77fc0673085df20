"""Registers the fast paths of SAC's updates, and lists all paths of SAC and TD3."""

from __future__ import annotations

from metta_fast.algorithms.sac.c.sac_update import C_UPDATE
from metta_fast.policy import fast_paths as policy_paths
from metta_fast.rollout import fast_paths as rollout_paths
from metta_fast.runtime.fast_paths import (
    FastPath,
    Situation,
    no_graphs,
    only_on_cpu,
    only_on_gpu,
    register,
)

UPDATE_GRAPHS = register(
    FastPath(
        name="off-policy updates as CUDA graphs",
        replaces="the same work launch by launch (algorithms/sac/learner.py)",
        why_not=no_graphs,
        unneeded=only_on_gpu,
        test="tests/sac/test_cuda.py::test_graphs_change_nothing",
        modules=("metta_fast.algorithms.sac.learner",),
    )
)


def _other_layers(situation: Situation) -> str | None:
    if situation.config.policy.activation != "relu":
        return f"policy.activation={situation.config.policy.activation}"
    if situation.config.algorithm.get("layer_norm"):
        return "algorithm.layer_norm=true"
    if situation.config.algorithm.get("batch_norm"):
        return "algorithm.batch_norm=true"
    return "trainer.compile=true" if situation.trainer.compile else None


CRITIC_OPERATOR = register(
    FastPath(
        name="critics as one operator",
        replaces="their layers one by one (algorithms/sac/critics.py)",
        why_not=_other_layers,
        unneeded=only_on_cpu,
        test="tests/sac/test_critics.py::test_the_operator_is_the_layers_one_by_one",
        modules=("metta_fast.algorithms.sac.critics", "metta_fast.algorithms.sac.dense_operator"),
    )
)
PATHS = (*rollout_paths.PATHS, *policy_paths.PATHS, UPDATE_GRAPHS, C_UPDATE, CRITIC_OPERATOR)
"""All fast paths of SAC and TD3."""
