"""Generates random numbers keyed by their purpose: the order of calls does not matter, a resume needs no RNG state.

generator = Keyed(seed, device)
noise = torch.rand(shape, generator=generator(NOISE, epoch))
"""

from __future__ import annotations

import torch

from metta_fast.contracts.env import EVAL_SEED_BIT

NOISE, ORDER, ENVS, SAMPLE = range(4)
"""Keys of the streams: sampling noise, order of segments, environments' seed after a resume, sampling in features."""


def mix(seed: int, *key: int) -> int:
    """Hashes `seed` and all of `key` to a 64-bit number (splitmix64's finisher)."""
    word = seed
    for part in key:
        word = (word + 0x9E3779B97F4A7C15 * (part + 1)) % 2**64
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        word ^= word >> 31
    return word


def env_seed(seed: int, epoch: int) -> int:
    """Returns the environments' seed: `seed` itself at the run's start, a different one after each resume."""
    return seed if epoch == 0 else mix(seed, ENVS, epoch) & ~EVAL_SEED_BIT


class Keyed:
    """Holds one generator that is seeded again for each key."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self._generator = torch.Generator(device)

    def __call__(self, *key: int) -> torch.Generator:
        """Returns the generator at the start of the key's stream; valid until the next call."""
        return self._generator.manual_seed(mix(self.seed, *key))
