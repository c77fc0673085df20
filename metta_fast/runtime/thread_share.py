"""Runs C kernels in parallel on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise

import torch


def share(work: Callable[[int, int], None], total: int, grain: int) -> None:
    """Calls work(lo, hi) on parts of [0, total) in parallel, on at most as many threads as torch uses.

    Args:
        grain: the boundaries of the parts are multiples of this.
    """
    grains = max(total // grain, 1)
    threads = min(torch.get_num_threads(), grains)
    cuts = [grains * i // threads * grain for i in range(threads)] + [total]
    others = [_threads(threads - 1).submit(work, lo, hi) for lo, hi in pairwise(cuts[1:])]
    try:
        work(0, cuts[1])
    finally:
        wait(others)  # also after an exception: they write to the caller's arrays
    for other in others:
        other.result()


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="policy")
