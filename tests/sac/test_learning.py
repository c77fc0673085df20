"""SAC and TD3 learn tiny tasks in seconds."""

from __future__ import annotations

import pytest

import metta_fast
from tests.tiny import trained

TINY = (
    "policy.hidden_size=16", "trainer.minibatch_size=64", "trainer.learning_rate=0.01", "trainer.device=cpu",
    "algorithm.learning_starts=100", "env.step_cost=cheap",
)  # fmt: skip
TINY_STEPS = "trainer.total_timesteps=600"


@pytest.mark.parametrize(("env", "words", "least"), [
    ("target", ("algorithm=sac", "trainer.total_timesteps=500"), -0.3),
    ("target", ("algorithm=td3", "trainer.total_timesteps=500"), -0.3),
    ("target", ("algorithm=sac", "algorithm.critic=quantile", "trainer.total_timesteps=500"), -0.3),
    ("target", ("algorithm=sac", "algorithm.batch_norm=true", "trainer.total_timesteps=500"), -0.3),
    ("target", ("algorithm=td3", "algorithm.critic=quantile", "algorithm.batch_norm=true", TINY_STEPS), -0.3),
    ("bandit", ("algorithm=sac", "trainer.total_timesteps=400"), 0.85),
    ("legal", ("algorithm=sac", "trainer.total_timesteps=900"), 7.0),
], ids=["sac", "td3", "quantile", "batch_norm", "both", "discrete", "masks"])  # fmt: skip
def test_tiny_tasks(env, words, least, tmp_path) -> None:
    run = trained(tmp_path, f"env=metta_fast.envs.sanity.{env}:make", *TINY, *words)
    found = metta_fast.evaluate(run, episodes=100, deterministic=True, trust=True)
    assert found["return"] > least
