"""Smaller sizes, where memory does not do."""

from __future__ import annotations

from collections.abc import Callable

from metta_fast.config.keys import Config, config_from_dict, config_to_dict, get
from metta_fast.resolve.fit_sizes import fit_sizes


def smaller_sizes(config: Config, fits: Callable[[Config], bool] = lambda smaller: True) -> str:
    """Arguments that halve batch and minibatch of a resolved configuration, again and again until it `fits`, and
    that work together; "" if none do."""
    smaller = config_from_dict(config_to_dict(config))
    while True:
        smaller.trainer.batch_size //= 2
        smaller.trainer.minibatch_size = max(1, smaller.trainer.minibatch_size // 2)
        if smaller.trainer.batch_size < smaller.env.agents_per_env:
            return ""
        fit_sizes(smaller, lambda path: False)
        if fits(smaller):
            break
    paths = ("env.num_envs", "trainer.batch_size", "trainer.minibatch_size", "trainer.bptt_horizon")
    return " ".join(
        f"{path}={get(smaller, path)}" for path in paths if get(smaller, path) != get(config, path)
    )


def out_of_memory_advice(config: Config) -> str:
    """What to try after the GPU's memory ran out: keys and values, for the resolved configuration."""
    trainer = config.trainer
    advice = (
        f"out of GPU memory with trainer.batch_size={trainer.batch_size} "
        f"trainer.minibatch_size={trainer.minibatch_size}; try {smaller_sizes(config) or 'a smaller policy'}"
    )
    if not trainer.cpu_offload:
        advice += "\nor keep the rollout in host memory: trainer.cpu_offload=true"
        if config.env.device == "cuda":
            advice += " env.device=cpu"
    return advice
