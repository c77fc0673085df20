"""Registers the fast path of SAC's updates, and lists all paths of SAC and TD3."""

from __future__ import annotations

from metta_fast.policy import fast_paths as policy_paths
from metta_fast.rollout import fast_paths as rollout_paths
from metta_fast.runtime.fast_paths import FastPath, no_graphs, only_on_gpu, register

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
PATHS = (*rollout_paths.PATHS, *policy_paths.PATHS, UPDATE_GRAPHS)
"""All fast paths of SAC and TD3."""
