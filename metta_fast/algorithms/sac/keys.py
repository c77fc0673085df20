"""The keys of SAC and TD3, `algorithm.*`; docs/sac.md has each with its equation and source."""

from __future__ import annotations

from dataclasses import dataclass

from metta_fast.config.key import key


@dataclass
class OffPolicyKeys:
    """Keys that both have."""

    replay_size: int = key(
        "auto",
        "transitions that the replay buffer keeps, the newest: a number, or auto (a million, at most those of the run)",
        kind="int",
        auto=True,
        low=1,
    )
    learning_starts: int = key(
        "auto",
        "agent steps before the first update, with the untrained policy's actions: a number, or auto (5000, at most a "
        "tenth of the run; with environments on the GPU 10 rows of each)",
        kind="int",
        auto=True,
        low=0,
        high=10**12,
    )
    collect_steps: int = key(
        "auto",
        "rows that each agent gives in an epoch, before its updates: a number, or auto (64 steps of all agents "
        "together; with environments on the GPU 8)",
        kind="int",
        auto=True,
        low=1,
        high=1_000_000,
    )
    updates_per_step: float = key(
        "auto",
        "updates for each agent step: a number, or auto (1; with environments on the GPU 4 for a row of all agents)",
        kind="float",
        auto=True,
        low=0,
        high=1000,
    )
    n_step: int = key(1, "rewards in a target before the target networks' value", low=1, high=100)
    tau: float = key(
        "auto",
        "share of the critics' weights that the target networks take over at an update: a number, or auto (0.005; with "
        "environments on the GPU 0.02)",
        kind="float",
        auto=True,
        low=0,
        high=1,
    )
    critics: int = key(2, "critics; targets take the least of their values", low=1, high=100)
    critic_width: int = key(
        "auto",
        "units of a critic's layers: a number, or auto (policy.hidden_size)",
        kind="int",
        auto=True,
        low=1,
    )
    critic_layers: int = key(2, "hidden layers of a critic", low=1, high=16)
    layer_norm: bool = key(
        "auto",
        "normalize the critics' layers before the activation: true, false, or auto (with environments on the GPU)",
        kind="bool",
        auto=True,
    )
    batch_norm: bool = key(
        False,
        "batch renormalisation of the critics' layers, with the values of both states in one batch and no target "
        "networks (CrossQ); continuous actions only",
    )
    critic: str = key(
        "mean",
        "what a critic gives: mean (the expected return) or quantile (quantiles of the return's distribution, TQC; "
        "continuous actions only)",
        choices=("mean", "quantile"),
    )
    quantiles: int = key(25, "quantiles of a critic (algorithm.critic=quantile)", low=1, high=1000)
    dropped_quantiles: int = key(
        2,
        "largest quantiles of each critic that targets leave out (algorithm.critic=quantile)",
        low=0,
        high=999,
    )
    actor_delay: int = key(
        "auto",
        "critic updates for each update of the actor: a number, or auto (SAC 1, TD3 2)",
        kind="int",
        auto=True,
        low=1,
        high=1000,
    )
    save_replay: bool = key(
        True,
        "checkpoints hold the replay buffer; false: a resumed run fills it anew before it goes on learning",
    )


@dataclass
class SACKeys(OffPolicyKeys):
    initial_temperature: float = key(1.0, "weight of the entropy at the start", low=1e-8, high=1e6)
    target_entropy: float | None = key(
        "auto",
        "entropy that the temperature is adapted to: a number, null (the temperature stays at initial_temperature), or "
        "auto (minus the number of continuous actions; of discrete ones a quarter of the uniform policy's entropy)",
        kind="float",
        auto=True,
        null=True,
    )


@dataclass
class TD3Keys(OffPolicyKeys):
    target_noise: float = key(
        0.2, "standard deviation of the noise on target actions, in units of half the action's range", low=0
    )
    target_noise_clip: float = key(0.5, "largest noise on target actions", low=0)
