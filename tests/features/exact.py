"""Checks what every feature of the learner promises: exact resumes, on the host and ahead of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from metta_fast.algorithms.ppo import PPO
from tests.ppo.stand_in import run
from tests.ppo.test_rollout import weights


def check_resume(make: Callable[[], PPO], epochs: int = 4) -> PPO:
    """Trains `epochs` at once, and with a stop after half of them: the weights are the same. Returns the first run."""
    whole, half = make(), epochs // 2
    for epoch in range(epochs):
        whole.collect()
        whole.update()
        if epoch == half - 1:
            state, vec = whole.state_dict(), whole.vec.state_dict()
    again = make()
    again.vec.load_state_dict(vec)
    again.load_state_dict(state)
    run(again, epochs - half)
    whole.rollout.vec.close()
    assert torch.equal(weights(whole), weights(again))
    return whole
