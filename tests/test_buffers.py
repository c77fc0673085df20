"""Tests buffers: documented shapes and dtypes, allocated once, and no waiting for the device per row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from metta_fast.buffers.rollout import CHECKED, Buffers
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo

SPEC = EnvSpec(
    "mixed",
    agents_per_env=2,
    obs={"cells": Leaf((5, 4), "uint8"), "count": Leaf((), "int32"), "own": Leaf((7,), "float32")},
    action=ActionSpec("discrete", (4, 2), (0, 0)),
    stats=("score",),
)
SHAPES = {
    "mask": (9, 6),
    "reset": (9, 6),
    "action": (8, 6, 2),
    "logprob": (8, 6),
    "value": (9, 6),
    "reward": (8, 6),
    "terminal": (8, 6),
    "truncation": (8, 6),
    "stats": (8, 6, 1),
    "ratio": (8, 6),
    "advantage": (8, 6),
    "returns": (8, 6),
    "state": (2, 2, 6, 16),
}


def allocate(**keys: Any) -> Buffers:
    keys = {"horizon": 8, "bptt_horizon": 4, "state_shape": (2, 16), **keys}
    return Buffers.allocate(SPEC, num_agents=6, device=torch.device("cpu"), **keys)


def arrays(b: Buffers) -> dict[str, torch.Tensor]:
    return {**{f"obs {k}": v for k, v in b.obs.items()}, **{name: getattr(b, name) for name in SHAPES}}


def test_one_contiguous_array_for_each_leaf_in_the_environments_dtype() -> None:
    b = allocate()
    assert {name: (tuple(leaf.shape), leaf.dtype) for name, leaf in b.obs.items()} == {
        "cells": ((9, 6, 5, 4), torch.uint8),
        "count": ((9, 6), torch.int32),
        "own": ((9, 6, 7), torch.float32),
    }
    assert {name: tuple(getattr(b, name).shape) for name in SHAPES} == SHAPES
    assert all(array.is_contiguous() for array in arrays(b).values())
    assert b.action.dtype == torch.int32
    assert {name for name in SHAPES if getattr(b, name).dtype == torch.bool} == {
        "mask",
        "reset",
        "terminal",
        "truncation",
    }
    assert (b.num_agents, b.num_segments) == (6, 12)
    assert bool((b.ratio == 1).all())


def test_a_horizon_of_part_segments_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon 8 is not a whole multiple of bptt_horizon 3"):
        allocate(bptt_horizon=3)


def test_debug_finds_a_single_row_that_nobody_wrote() -> None:
    b = allocate(debug=True)
    for name in (*CHECKED, "obs own"):
        for array in (*b.obs.values(), *(getattr(b, n) for n in CHECKED)):
            array.zero_()
        assert b.unwritten() is None
        kept = arrays(b)[name][5, 3].clone()
        b.fill_magic()
        magic = arrays(b)[name][5, 3].clone()
        assert not torch.equal(magic, kept)
        for array in (*b.obs.values(), *(getattr(b, n) for n in CHECKED)):
            array.zero_()
        arrays(b)[name][5, 3] = magic
        assert b.unwritten() == name


def test_arrays_stay_where_they_are_over_epochs() -> None:
    ppo = make_ppo(tickers(3), lstm=True, advantage="vtrace", recompute="minibatch", normalize_reward=True)
    places = {name: array.data_ptr() for name, array in arrays_of(ppo).items()}
    for _ in range(2):
        ppo.collect()
        ppo.update()
    ppo.rollout.vec.close()
    assert {name: array.data_ptr() for name, array in arrays_of(ppo).items()} == places


def arrays_of(ppo: Any) -> dict[str, torch.Tensor]:
    b = ppo.buffers
    return {**b.obs, **{name: getattr(b, name) for name in SHAPES}}


class Reads(TorchDispatchMode):
    """Counts what makes the host wait for a device: a tensor read as a Python number."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_no_row_and_no_minibatch_is_read_back() -> None:
    """As many reads for a long rollout with many minibatches as for a short one."""
    counts = []
    for horizon, minibatches in ((8, 1), (32, 8)):
        ppo = make_ppo(tickers(2), horizon=horizon, bptt=8, minibatches=minibatches, normalize_reward=True)
        with Reads() as reads:
            ppo.collect()
            ppo.update()
        ppo.rollout.vec.close()
        counts.append(reads.count)
    assert counts[0] == counts[1]
