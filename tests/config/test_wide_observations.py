"""Tests that a first layer which cannot fit into memory is refused with its sizes, and with what to change."""

from __future__ import annotations

import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve


class Wide(gymnasium.Env):
    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.observation_space = space


@pytest.mark.parametrize("backend", ["serial", "workers"])
@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (spaces.Discrete(5_000_000), "observation 'obs' of my_wide is 5,000,000 numbers"),
        (spaces.MultiDiscrete([2, 9_000_000]), "observation 'obs' of my_wide is 9,000,002 numbers"),
        (
            spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Box(0, 1, (10**7,), np.float32)),
            "observation 'b' of my_wide",
        ),
    ],
    ids=["Discrete", "MultiDiscrete", "Box"],
)
def test_a_first_layer_too_large_for_memory_is_refused_with_sizes(monkeypatch, space, shown, backend):
    module = types.ModuleType("my_wide")
    module.make = lambda config: lambda index: Wide(space)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_wide", module)
    words = ["env=my_wide:make", "env.step_cost=medium", "env.action_mask=none", f"vector.backend={backend}"]
    machine = Machine(4, 8, 16 * GIB)
    with pytest.raises(UserError, match=r"about [\d.]+ GiB of host memory are needed \(.*weights") as told:
        resolve(compose(words, machine=machine), machine=machine)
    assert shown in str(told.value)
    assert "give fewer numbers" in str(told.value)
