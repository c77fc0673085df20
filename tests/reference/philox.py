"""Implements Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) in Python.

key = the 64-bit seed (low word first); counter = (env id, t, stream, n // 4); the n-th number is word n % 4.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
MASK = 0xFFFFFFFF
STREAM_MAP, STREAM_ORDER, STREAM_SPARE = 0, 1, 2


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds; all words are u32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & MASK,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & MASK,
        )
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


class Random:
    """The numbers 0, 1, 2, … of one (seed, env id, t, stream)."""

    def __init__(self, seed: int, env_id: int, t: int, stream: int) -> None:
        self.key = (seed & MASK, (seed >> 32) & MASK)
        self.place = (env_id & MASK, t & MASK, stream)
        self.drawn = 0

    def u32(self) -> int:
        words = philox4x32((*self.place, self.drawn // 4), self.key)
        word = words[self.drawn % 4]
        self.drawn += 1
        return word

    def below(self, k: int) -> int:
        """A number in 0 … k-1, by one draw."""
        return (self.u32() * k) >> 32

    def shuffle(self, items: list[T]) -> None:
        """Fisher–Yates from the end, in place: n-1 draws."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
