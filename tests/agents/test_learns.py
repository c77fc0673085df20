"""Trains several agents that pause, with different spaces, as a user types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import metta_fast
from tests.agents.herd import NUMBERS


def test_agents_that_pause_learn_and_have_statistics_of_their_own(tmp_path: Path) -> None:
    found: Any = metta_fast.train(
        env="tests.agents.herd:make",
        env__pad=True,
        env__num_envs=16,
        trainer__total_timesteps=20_000,
        trainer__batch_size=1536,
        trainer__minibatch_size=512,
        trainer__bptt_horizon=1,
        trainer__update_epochs=3,
        trainer__learning_rate=1e-2,
        run__dir=str(tmp_path),
        run__name="run",
        run__dashboard="none",
        vector__backend="serial",
        env__step_cost="cheap",
        env__action_mask="none",
    )
    results = metta_fast.evaluate(found.folder, episodes=20, deterministic=True)
    print(results, found)
    for agent in NUMBERS:
        assert results[f"return/{agent}"] > 0.97 * results[f"length/{agent}"]
