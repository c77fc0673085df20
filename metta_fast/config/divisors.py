"""Divisors of a size: the values that a message can offer instead of one that does not divide."""

from __future__ import annotations


def divisors(number: int) -> list[int]:
    """Returns all divisors of a positive number, rising."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})
