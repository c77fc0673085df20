"""Generates random numbers keyed by their purpose: the order of calls does not matter, a resume needs no RNG state.

generator = Keyed(seed, device)
noise = torch.rand(shape, generator=generator(NOISE, epoch))
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.env import EVAL_SEED_BIT

NOISE, ORDER, ENVS, SAMPLE, SHIFT = range(5)
"""Keys of the streams: sampling noise, order of segments, environments' seed after a resume, sampling in features,
moves of images."""


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


WORDS = 624
"""Words of the state of torch's generator on the CPU, a Mersenne twister."""


def reseed(generator: torch.Generator, seed: int) -> torch.Generator:
    """Starts the stream of a 64-bit seed and returns the generator.

    manual_seed takes the lower 32 bits on the CPU, so that two of 65,000 keys would share their stream as likely as
    not. Here Philox, keyed by all 64, fills the twister's state.
    """
    if generator.device.type != "cpu":
        return generator.manual_seed(seed)
    state = _state_after_seeding().clone()
    own = state.numpy().view(np.uint64)
    own[0] = seed
    own[3 : 3 + WORDS] = np.random.Philox(key=seed).random_raw(WORDS // 2).view(np.uint32)
    generator.set_state(state)
    return generator


@cache
def _state_after_seeding() -> Tensor:
    """Returns the state of a newly seeded generator on the CPU, in uint64: seed, flags, 0, WORDS words, no spare normal
    number.

    Raises:
        RuntimeError: torch stores it in another way.
    """
    state = torch.Generator().manual_seed(1).get_state()
    own = state.numpy().view(np.uint64)
    words = np.random.RandomState(1).get_state(legacy=False)["state"]["key"]
    if len(own) != WORDS + 8 or own[0] != 1 or not np.array_equal(own[3 : 3 + WORDS], words):
        raise RuntimeError(f"torch {torch.__version__} stores the state of its generator in an unknown way")
    return state


class Keyed:
    """Holds one generator that is seeded again for each key."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self._generator = torch.Generator(device)

    def __call__(self, *key: int) -> torch.Generator:
        """Returns the generator at the start of the key's stream; valid until the next call."""
        return reseed(self._generator, mix(self.seed, *key))
