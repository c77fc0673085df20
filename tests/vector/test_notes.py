"""Tests that notes of environments are told once: across blocks, workers and calls."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from metta_fast.vector import make_vector
from tests.vector.suite import BACKENDS
from tests.vector.toys import ToyBatch, ToyFactory

ENVS = 7


class NotingFactory(ToyFactory):
    def __init__(self):
        super().__init__()
        self.spec = dataclasses.replace(self.spec, notes=True)

    def make_batch(self, first_env, num_envs, total_envs):
        return NotingBatch(self.spec, first_env, num_envs, total_envs)


class NotingBatch(ToyBatch):
    """Notes "even" in every environment, and "high" in those from 4 on, whenever it is asked after step 2."""

    def notes(self):
        if self.clock[0] < 2:
            return {}
        last = self.first + self.n - 1
        return {"even": f"environment {self.first} is even"} | (
            {"high": f"environment {last} is high"} if last >= 4 else {}
        )


@pytest.mark.parametrize("num_blocks", [1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_kind_of_note_is_told_once(backend, num_blocks):
    keys = BACKENDS[backend]
    with make_vector(NotingFactory(), ENVS, num_blocks=num_blocks, **keys) as vec:
        vec.async_reset(0)
        told = []
        for _ in range(5):
            for block in vec.hold_all():
                vec.send(block, np.zeros((block.size, 2), np.int32))
            vec.hold_all()
            told.append(vec.notes())
    assert told[0] == []
    assert [text.rpartition(" ")[2] for text in told[1]] == ["even", "high"]
    assert told[1][0] == "environment 0 is even"  # the first of them all
    assert told[2:] == [[], [], []]
