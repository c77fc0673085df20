"""Estimates the memory of a policy before one is made: its weights, its activations, its state.

    config, EnvSpec ─► weights(…) numbers · saved_by_row(…) bytes · state_by_agent(…) numbers

Algorithms add these up in their own estimates (`AlgorithmKind.memory`). Weights and states are exact.
Activations are bytes that autograd kept on the CPU for each policy (bf16, hidden 128 and 256); on the CPU the most
that trials took (bench/sizing/batch_trial.py). torch is not imported.
"""

from __future__ import annotations

from math import prod

import numpy as np

from metta_fast.config.encoders import encoder_memory
from metta_fast.config.frame_stack import stacked
from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvSpec

STATE_LAYERS = {"none": 0, "lstm": 2}
"""Arrays of hidden_size that a core keeps of an agent; others: 1."""
SAVED_BY_UNIT = {"none": 13, "lstm": 41, "mingru": 22}
"""Bytes of activations for each unit of hidden_size and row in bf16, encoder included."""
TAKEN_BY_UNIT = {"none": 17, "lstm": 92, "mingru": 43}
"""The same on the CPU, in fp32 or bf16, gradients and temporaries included."""
SAVED_BY_CHOICE = 17
"""The same for each parameter of the action distribution."""
SAVED_BY_ROW = 100
"""The same for a row's action, ratio, advantage and other numbers of the loss."""


def observation_bytes(spec: EnvSpec) -> int:
    """Returns the bytes of one agent's observation."""
    return sum(prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in spec.obs.values())


def state_by_agent(config: Config) -> int:
    """Returns how many numbers the core keeps of an agent, without the frames of policy.frame_stack."""
    policy = config.policy
    return STATE_LAYERS.get(policy.core, 1) * policy.hidden_size * _networks(config)


def saved_by_row(config: Config, spec: EnvSpec) -> int:
    """Returns the bytes that autograd keeps of one row, its observation included; on the CPU all that a row takes."""
    by_unit = SAVED_BY_UNIT if config.trainer.device == "cuda" else TAKEN_BY_UNIT
    wide = 1 if config.trainer.precision in ("bf16", "fp16") or by_unit is TAKEN_BY_UNIT else 2
    unit = by_unit.get(config.policy.core, max(by_unit.values())) * wide
    spec = stacked(spec, config.policy.frame_stack)
    return (
        observation_bytes(spec)
        + (encoder_memory(config.policy, spec).row + unit * config.policy.hidden_size) * _networks(config)
        + SAVED_BY_CHOICE * _choices(spec)
        + SAVED_BY_ROW
    )


def weights(config: Config, spec: EnvSpec) -> int:
    """Returns the number of weights: encoder, core, heads."""
    size = config.policy.hidden_size
    core = {"none": 0, "lstm": 8}.get(config.policy.core, 3)
    network = (
        encoder_memory(config.policy, stacked(spec, config.policy.frame_stack)).weights + size * size * core
    )
    return network * _networks(config) + size * (_choices(spec) + 1)


def _choices(spec: EnvSpec) -> int:
    """Returns the number of parameters of the action distribution."""
    return sum(spec.action.nvec) + 2 * len(spec.action.low)


def _networks(config: Config) -> int:
    """Returns the number of encoders and cores: with policy.shared=false the value has its own."""
    return 1 if config.policy.shared else 2
