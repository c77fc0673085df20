"""The fast paths of a rollout. The one in C is registered where it is: c_rollout.py.

Place in the flow: an algorithm lists PATHS among those that it can take, and passes on what was chosen.
"""

from __future__ import annotations

from typing import Any

from metta_fast.distributed.group import current
from metta_fast.policy.fast_paths import no_sparse_layer
from metta_fast.policy.fused_act.applies import not_in_triton
from metta_fast.rollout.c_rollout import C_ROLLOUT
from metta_fast.runtime.fast_paths import (
    FastPath,
    Situation,
    action_masks,
    no_graphs,
    only_on_gpu,
    register,
    without_triton,
)
from metta_fast.runtime.torch_setup import AUTOCAST


def _envs_on_gpu(situation: Situation) -> str | None:
    return "environments step on the GPU (vector.backend=gpu)" if situation.envs_on_gpu else None


def _envs_on_cpu(situation: Situation) -> str | None:
    return (
        None
        if situation.envs_on_gpu
        else f"environments step on the CPU (env.device={situation.config.env.device})"
    )


def _no_fused_act(situation: Situation) -> str | None:
    if why := without_triton(situation) or action_masks(situation):
        return why
    if not (situation.graphs or situation.envs_on_gpu):
        return "trainer.cuda_graphs=false"
    return not_in_triton(situation.policy, AUTOCAST.get(situation.trainer.precision))


def _no_rollout_graphs(situation: Situation) -> str | None:
    vec: Any = situation.vec if situation.envs_on_gpu else None
    if vec is not None and not vec.capturable and vec.build_every:
        return f"{situation.spec.name} cannot be captured (its vector has capturable=False, and builds ahead)"
    return no_graphs(situation)


def _copies_twice(situation: Situation) -> str | None:
    return None if situation.config.vector.zero_copy else "vector.zero_copy=false"


def _offloaded(situation: Situation) -> str | None:
    return "trainer.cpu_offload=true: the rollout is in host memory" if situation.offloaded else None


def _merges_rewards(situation: Situation) -> str | None:
    several = current().active and situation.trainer.normalize_reward
    return (
        "several processes: trainer.normalize_reward merges their rewards before it scales"
        if several
        else None
    )


def _not_compiled(situation: Situation) -> str | None:
    return None if situation.trainer.compile else "trainer.compile=false"


def _not_compiled_on_cpu(situation: Situation) -> str | None:
    return None if situation.on_gpu else _not_compiled(situation)


FUSED_ACT = register(
    FastPath(
        name="rollout's row in one Triton kernel",
        replaces="the policy's forward and sampling by torch (rollout/act.py: ActInto)",
        why_not=_no_fused_act,
        unneeded=lambda s: only_on_gpu(s) or no_sparse_layer(s),
        test="tests/policy/test_gpu_act.py::test_in_the_place_of_a_rollouts_step",
        modules=(
            "metta_fast.policy.fused_act.applies",
            "metta_fast.policy.fused_act.triton_act",
            "metta_fast.rollout.act",
        ),
    )
)
ROLLOUT_GRAPHS = register(
    FastPath(
        name="rollout as CUDA graphs",
        replaces="the same work launch by launch (rollout/rollout.py)",
        why_not=_no_rollout_graphs,
        unneeded=only_on_gpu,
        test="tests/ppo/test_graph_rollout.py::test_rows_are_those_of_the_plain_rollout",
        modules=("metta_fast.rollout.graph_rollout", "metta_fast.runtime.cuda_graph"),
    )
)
DEVICE_ROLLOUT = register(
    FastPath(
        name="rollout without the host",
        replaces="copies between environments and policy, block by block (rollout/rollout.py)",
        why_not=lambda _: None,
        unneeded=lambda s: only_on_gpu(s) or _envs_on_cpu(s),
        test="tests/ppo/test_device_rollout.py::test_same_as_with_a_vector_of_blocks",
        modules=("metta_fast.rollout.device_rollout",),
    )
)
PINNED_COPIES = register(
    FastPath(
        name="copies from page-locked rows",
        replaces="a rollout in host memory, copied for the policy and again for the update (OffloadTransfer)",
        why_not=_offloaded,
        unneeded=lambda s: only_on_gpu(s) or _envs_on_gpu(s),
        test="tests/ppo/test_cuda.py::test_where_the_buffers_lie_changes_nothing_but_rounding",
        modules=("metta_fast.rollout.transfer",),
    )
)
ZERO_COPY = register(
    FastPath(
        name="one copy of each row",
        replaces="two copies of each row, one of them private (vector.zero_copy=false)",
        why_not=_copies_twice,
        unneeded=_envs_on_gpu,
        test="tests/ppo/test_rollout.py::test_a_private_copy_or_debug_mode_changes_nothing",
        modules=("metta_fast.rollout.transfer",),
    )
)
SUMMARY_KERNELS = register(
    FastPath(
        name="rollout's summary in Triton",
        replaces="torch's operators (rollout/summary.py)",
        why_not=lambda s: without_triton(s) or _offloaded(s) or _merges_rewards(s),
        unneeded=only_on_gpu,
        test="tests/ppo/test_gpu_summary.py::test_same_as_torch",
        modules=("metta_fast.rollout.summary", "metta_fast.rollout.triton_summary"),
    )
)
COMPILED = register(
    FastPath(
        name="torch.compile",
        replaces="torch's operators one by one",
        why_not=_not_compiled,
        unneeded=_not_compiled_on_cpu,
        test="tests/ppo/test_gpu_loop.py::test_graphs_change_nothing",
        modules=("metta_fast.rollout.act", "metta_fast.rollout.check_compiled"),
    )
)
PATHS = (
    C_ROLLOUT,
    FUSED_ACT,
    ROLLOUT_GRAPHS,
    DEVICE_ROLLOUT,
    PINNED_COPIES,
    ZERO_COPY,
    SUMMARY_KERNELS,
    COMPILED,
)
