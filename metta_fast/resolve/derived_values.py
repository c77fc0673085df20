"""Derives learning values for an environment that is not ours from what it is and from the budget.

The values found for our grids and robots are in configs/. A stranger's environment has none: its observations, actions,
episode length and class of step time, and `trainer.total_timesteps`, choose these. No rule depends on a name, and
nothing that is measured counts but the class of step time, so the same command is the same run.

Place in the flow: resolve/ puts these between the detected profile and a typed one (docs/configuration.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metta_fast.contracts.env import EnvSpec

STEP_COSTS = ("cheap", "medium", "slow")
"""Classes of the time of one environment's step: under 20 µs, under 1 ms, slower."""


@dataclass(frozen=True)
class Facts:
    """Holds what the derived values depend on."""

    spec: EnvSpec
    """Observations and actions of one environment."""
    episode_length: int | None
    """Steps after which an episode is cut off; None: unknown."""
    step_cost: str
    """One of STEP_COSTS."""
    total_timesteps: int
    """The budget in agent steps."""
    core: str = "none"
    """The policy's recurrent core: none, lstm or mingru."""


def derive(facts: Facts) -> dict[str, tuple[Any, str]]:
    """Returns the derived values: key → (value, reason)."""
    agents = facts.spec.agents_per_env
    rows = _batch(facts.total_timesteps)
    envs = max(1, (16 if facts.total_timesteps >= 500_000 else 8) // agents)
    recurrent = facts.core != "none"
    values: dict[str, tuple[Any, str]] = {
        "env.num_envs": (envs, "a few environments: a short budget needs long rollouts of each"),
        "trainer.batch_size": (rows, f"about 1/24 of {facts.total_timesteps} steps, between 512 and 4096"),
        "trainer.minibatch_size": (256 if recurrent else 64, "many gradient steps from few rows"),
        "trainer.bptt_horizon": (32, "recurrent") if recurrent else (1, "rows are shuffled one by one"),
        "trainer.update_epochs": (10, "several passes over few rows"),
        "trainer.learning_rate": (3e-4, "small minibatches"),
        "trainer.schedule": ("linear", "falls to 0 at the end of the budget"),
        "trainer.entropy_coef": (0.0, "rewards are normalized"),
        "policy.hidden_size": (64, "an observation of few numbers"),
        "policy.activation": ("tanh", "an observation of few numbers"),
        "policy.shared": (recurrent, "the value has its own network" if not recurrent else "one core"),
        "policy.normalize_obs": (True, "the scale of the observation is unknown"),
        "trainer.gamma": _gamma(facts.episode_length),
    }
    return values


def _batch(total: int) -> int:
    """Returns a power of two between 512 and 4096, about 1/24 of the budget."""
    rows = 512
    while rows < 4096 and rows * 2 * 24 <= total:
        rows *= 2
    return rows


def _gamma(length: int | None) -> tuple[float, str]:
    """Returns the discount factor and its reason."""
    if length is None:
        return 0.99, "the length of an episode is unknown"
    gamma = round(min(0.999, max(0.9, 1 - 10 / length)), 4)
    return gamma, f"1 - 10 / episode length of {length}"
