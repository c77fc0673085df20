"""Registers the fast paths of PPO's update, and lists all paths of PPO. c/mlp_update.py registers the update in C.

Place in the flow: ppo.py chooses among PATHS once and passes the choices on; --explain does so without a run.
"""

from __future__ import annotations

import torch
from torch import nn

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.c.mlp_update import C_UPDATE
from metta_fast.algorithms.ppo.triton.applies import not_fused_loss, odd_parameters
from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import VectorEnv
from metta_fast.policy import fast_paths as policy_paths
from metta_fast.rollout import fast_paths as rollout_paths
from metta_fast.runtime.fast_paths import (
    FastPath,
    Situation,
    action_masks,
    no_graphs,
    only_on_cpu,
    only_on_gpu,
    other_optimizer,
    random_shift,
    register,
    without_triton,
)

WHOLE_UPDATE = 128
"""Most minibatches of an update that is one CUDA graph. Each has some tens of nodes; a graph of 100,000 nodes takes
seconds to make and hundreds of MiB."""


def situation_of(
    policy: nn.Module,
    config: Config,
    spec: EnvSpec,
    device: torch.device,
    hooks: Hooks,
    vec: VectorEnv | None = None,
) -> Situation:
    """Returns the situation that PPO chooses its paths for. vec: None if it is not made yet."""
    return Situation(
        policy,
        config,
        spec,
        device,
        extra_loss=bool(hooks.extra_loss),
        chooses_segments=hooks.sample is not None,
        vec=vec,
    )


def _host_memory(situation: Situation) -> str | None:
    return "the rollout is in host memory (trainer.cpu_offload)" if situation.offloaded else None


def _no_loss_kernels(situation: Situation) -> str | None:
    if why := without_triton(situation) or no_graphs(situation) or action_masks(situation):
        return why
    if situation.extra_loss:
        return "a feature adds to the loss"
    return not_fused_loss(situation.policy, situation.trainer) or random_shift(situation)


def _no_step_kernels(situation: Situation) -> str | None:
    if why := without_triton(situation) or other_optimizer(situation):
        return why
    if situation.trainer.precision == "fp16":
        return "trainer.precision=fp16 reads its loss scale on the host"
    return odd_parameters([p for p in situation.policy.parameters() if p.requires_grad])


def _no_bytes(situation: Situation) -> str | None:
    if any(leaf.dtype == "uint8" for leaf in situation.spec.obs.values()):
        return None
    return "the observation has no uint8 leaf"


def not_capturable(situation: Situation) -> str | None:
    """Returns why the update needs the host between minibatches, or None."""
    if situation.chooses_segments:
        return "a feature chooses the segments of each minibatch"
    if situation.extra_loss:
        return "a feature adds to the loss"
    if situation.trainer.precision == "fp16":
        return "trainer.precision=fp16 reads its loss scale on the host"
    return _host_memory(situation)


def _no_device_for_graphs(situation: Situation) -> str | None:
    return None if situation.graphs else only_on_gpu(situation)


def _minibatches(situation: Situation) -> int:
    trainer = situation.trainer
    return trainer.batch_size // trainer.minibatch_size * trainer.update_epochs


def _too_many(situation: Situation) -> str | None:
    count = _minibatches(situation)
    return (
        f"{count} minibatches are above {WHOLE_UPDATE}: each one is a CUDA graph"
        if count > WHOLE_UPDATE
        else None
    )


def _few(situation: Situation) -> str | None:
    return None if _too_many(situation) else "the whole update is one CUDA graph"


LOSS_KERNELS = register(
    FastPath(
        name="loss and backward pass in Triton",
        replaces="torch's operators and autograd after the first layer (gradients.py: _forward)",
        why_not=_no_loss_kernels,
        unneeded=only_on_gpu,
        test="tests/ppo/test_gpu_tail.py::test_same_as_torch",
        modules=(
            "metta_fast.algorithms.ppo.gradients",
            "metta_fast.algorithms.ppo.triton.applies",
            "metta_fast.algorithms.ppo.triton.loss_and_backward",
        ),
    )
)
STEP_KERNELS = register(
    FastPath(
        name="optimizer's step in Triton",
        replaces="torch's clipping and fused Adam (step.py: _take)",
        why_not=_no_step_kernels,
        unneeded=only_on_gpu,
        test="tests/ppo/test_gpu_step.py::test_same_as_torch",
        modules=("metta_fast.algorithms.ppo.step", "metta_fast.algorithms.ppo.triton.optimizer_step"),
    )
)
GATHER_KERNEL = register(
    FastPath(
        name="bytes of a minibatch gathered in Triton",
        replaces="index_select (minibatch.py)",
        why_not=lambda s: without_triton(s) or _host_memory(s),
        unneeded=lambda s: only_on_gpu(s) or _no_bytes(s),
        test="tests/ppo/test_gpu_gather.py::test_rows_are_those_of_index_select",
        modules=("metta_fast.algorithms.ppo.minibatch", "metta_fast.algorithms.ppo.triton.gather_rows"),
    )
)
UPDATE_GRAPH = register(
    FastPath(
        name="update as one CUDA graph",
        replaces="the same work launch by launch (learner.py)",
        why_not=lambda s: no_graphs(s) or not_capturable(s),
        unneeded=lambda s: _no_device_for_graphs(s) or _too_many(s),
        test="tests/ppo/test_cuda.py::test_graphs_change_nothing",
        modules=("metta_fast.algorithms.ppo.learner",),
    )
)
MINIBATCH_GRAPHS = register(
    FastPath(
        name="minibatches as CUDA graphs",
        replaces="the same work launch by launch (learner.py)",
        why_not=lambda s: no_graphs(s) or not_capturable(s),
        unneeded=lambda s: _no_device_for_graphs(s) or _few(s),
        test="tests/ppo/test_cuda.py::test_an_update_too_large_for_one_graph_has_one_for_its_minibatches",
        modules=("metta_fast.algorithms.ppo.learner",),
    )
)
ADVANTAGE_IN_C = register(
    FastPath(
        name="advantage in C",
        replaces="torch's operators (advantage/on_tensors.py)",
        why_not=lambda _: None,
        unneeded=lambda s: None if s.offloaded else only_on_cpu(s),
        test="tests/ppo/test_advantage.py::test_the_c_kernel_equals_the_reference",
        modules=("metta_fast.algorithms.ppo.advantage",),
    )
)
ADVANTAGE_IN_TRITON = register(
    FastPath(
        name="advantage in Triton",
        replaces="torch's operators (advantage/on_tensors.py)",
        why_not=without_triton,
        unneeded=lambda s: only_on_gpu(s) or _host_memory(s),
        test="tests/ppo/test_gpu_summary.py::test_advantage_equals_the_reference",
        modules=("metta_fast.algorithms.ppo.advantage",),
    )
)
COMPILED_AHEAD = register(
    FastPath(
        name="Triton's kernels compiled side by side",
        replaces="one after the other, each where it is first launched",
        why_not=lambda s: (
            without_triton(s) or (None if s.graphs or s.envs_on_gpu else "trainer.cuda_graphs=false")
        ),
        unneeded=only_on_gpu,
        test="tests/ppo/test_rehearse.py::test_an_epoch_launches_what_was_rehearsed",
        modules=("metta_fast.algorithms.ppo.ppo", "metta_fast.runtime.compile_ahead"),
    )
)
PATHS = (
    *rollout_paths.PATHS,
    *policy_paths.PATHS,
    C_UPDATE,
    LOSS_KERNELS,
    STEP_KERNELS,
    GATHER_KERNEL,
    UPDATE_GRAPH,
    MINIBATCH_GRAPHS,
    ADVANTAGE_IN_C,
    ADVANTAGE_IN_TRITON,
    COMPILED_AHEAD,
)
"""All fast paths of PPO."""
