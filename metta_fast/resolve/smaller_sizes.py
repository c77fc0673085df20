"""Finds smaller sizes for a machine whose memory is too small."""

from __future__ import annotations

from collections.abc import Callable

from metta_fast.algorithms.registry import kind_of
from metta_fast.config.keys import Config, config_from_dict, config_to_dict, get, put
from metta_fast.resolve.fit_sizes import fit_sizes


def smaller_sizes(config: Config, fits: Callable[[Config], bool] = lambda smaller: True) -> str:
    """Returns arguments that halve the algorithm's sizes until the configuration `fits`, or "" if none does.

    Args:
        config: a resolved configuration.
    """
    smaller, kind = config_from_dict(config_to_dict(config)), kind_of(config)
    while kind.halve(smaller):
        fit_sizes(smaller, lambda path: False)
        if fits(smaller):
            paths = [path for path in kind.sizes if get(smaller, path) != get(config, path)]
            return " ".join(f"{path}={get(smaller, path)}" for path in paths)
    return ""


def fewer_envs(config: Config, fits: Callable[[Config], bool]) -> str:
    """Returns arguments with the most environments that fit, and other sizes in proportion, or "" if one is too many.

    Args:
        config: a resolved configuration.
    """
    kind, was = kind_of(config), config.env.num_envs

    def with_envs(count: int) -> Config:
        fewer = config_from_dict(config_to_dict(config))
        fewer.env.num_envs = count
        if "trainer.batch_size" in kind.sizes:
            for path in ("trainer.batch_size", "trainer.minibatch_size"):
                put(fewer, path, max(1, get(config, path) * count // was))
        return fewer

    step = next(size for size in (1024, 64, 1) if was > size)
    low, high = 0, was // step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(with_envs(middle * step)) else (low, middle)
    if not low:
        return ""
    found = with_envs(low * step)
    paths = [
        path for path in dict.fromkeys(("env.num_envs", *kind.sizes)) if get(found, path) != get(config, path)
    ]
    return " ".join(f"{path}={get(found, path)}" for path in paths)


def out_of_memory_advice(config: Config) -> str:
    """Returns the message after the GPU ran out of memory, with keys and values to try, for a resolved
    configuration."""
    kind = kind_of(config)
    given = " ".join(f"{path}={get(config, path)}" for path in kind.sizes)
    advice = f"out of GPU memory with {given}; try {smaller_sizes(config) or 'a smaller policy'}"
    if "cpu_offload" in kind.reads and not config.trainer.cpu_offload:
        advice += "\nor keep the rollout in host memory: trainer.cpu_offload=true"
        if config.env.device == "cuda":
            advice += " env.device=cpu"
    return advice
