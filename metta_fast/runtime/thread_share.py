"""Threads for the policy's own C kernels, as many as torch uses for its."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch


def share(work: Callable[[int, int], None], total: int, grain: int) -> None:
    """work(lo, hi) over pieces of [0, total), whole grains each, on at most torch's number of threads."""
    grains = max(total // grain, 1)
    threads = min(torch.get_num_threads(), grains)
    cuts = [grains * i // threads * grain for i in range(threads)] + [total]
    others = [_threads(threads - 1).submit(work, lo, hi) for lo, hi in pairwise(cuts[1:])]
    work(0, cuts[1])
    for other in others:
        other.result()


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="policy")
