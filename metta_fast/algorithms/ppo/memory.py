"""Estimates PPO's memory before anything is allocated: rollout, activations, weights.

Buffers and weights are exact. Activations are those of one minibatch, doubled on a GPU for gradients and temporaries;
on the CPU they are right to within a tenth. torch is not imported.
"""

from __future__ import annotations

from metta_fast.config.frame_stack import state_numbers
from metta_fast.config.keys import Config
from metta_fast.config.policy_memory import observation_bytes, saved_by_row, state_by_agent, weights
from metta_fast.contracts.algorithm import MemoryPart
from metta_fast.contracts.env import EnvSpec

WEIGHT = 4 * 5
"""Bytes per weight: the weight, its gradient, Adam's two moments, and a copy in the products' dtype."""


def memory_parts(config: Config, spec: EnvSpec) -> list[MemoryPart]:
    """Returns the parts of a resolved configuration. Counts come from `config`, shapes from `spec`."""
    env, trainer = config.env, config.trainer
    cuda = trainer.device == "cuda"
    parts = [MemoryPart("rollout", _rollout(config, spec), cuda and not trainer.cpu_offload)]
    saved, agents = saved_by_row(config, spec), env.num_envs * env.agents_per_env
    each = 2 * saved if cuda else saved
    passes = 2 if trainer.random_shift else 1  # images as they are, and moved
    activations = passes * each * trainer.minibatch_size + saved * -(-agents // config.vector.async_factor)
    parts.append(MemoryPart("activations", activations, cuda))
    graphs = trainer.cuda_graphs or (trainer.compile and trainer.compile_mode == "reduce-overhead")
    if cuda and graphs:  # the warm-up before capture has its own memory
        parts.append(MemoryPart("pools of CUDA graphs", activations, True))
    parts.append(MemoryPart("weights", WEIGHT * weights(config, spec), cuda))
    return parts


def _rollout(config: Config, spec: EnvSpec) -> int:
    """Returns the bytes of the buffers and of the rollout's noise."""
    env, trainer = config.env, config.trainer
    agents = env.num_envs * env.agents_per_env
    width = spec.action.width
    each = (
        4 * width + 4 * 5 + 2 + 4 * len(spec.stats) + 4 * width
    )  # action, five floats, two flags, stats, noise
    every = observation_bytes(spec) + 2 + 4  # mask, reset, value: one row more than the horizon
    every += sum(spec.action.nvec) if spec.action_mask else 0
    if spec.autoreset == "same_step" and spec.has_final_obs:
        each += 4  # bootstrap
    segments = trainer.batch_size // trainer.bptt_horizon
    count = config.policy.frame_stack
    frames = (count - 1) * observation_bytes(spec) + 4 * state_numbers(spec, count)
    return (
        every * (trainer.batch_size + agents)
        + each * trainer.batch_size
        + 4 * state_by_agent(config) * segments
        + frames * agents  # before row 0, and the state's
    )
