"""Checks the values derived for an environment of one's own: what they depend on, and that every reason is given."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.config.keys import check_value, keys
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.resolve.derived.values import STEP_COSTS, Facts, derive

DISCRETE = ActionSpec("discrete", nvec=(3,))
BOX = ActionSpec("box", low=(-1.0,), high=(1.0,))


def facts(*, obs: Any = None, action: ActionSpec = DISCRETE, agents: int = 1, **given: Any) -> Facts:
    leaves = obs or {"obs": Leaf((4,), "float32")}
    spec = EnvSpec(name="anything", agents_per_env=agents, obs=leaves, action=action)
    return Facts(
        **{"spec": spec, "episode_length": None, "step_cost": "medium", "total_timesteps": 100_000} | given
    )


def value(path: str, **given: Any) -> Any:
    return derive(facts(**given))[path][0]


@given(
    total=st.integers(1, 10**9),
    cost=st.sampled_from(STEP_COSTS),
    length=st.none() | st.integers(1, 10**6),
    agents=st.integers(1, 300),
    core=st.sampled_from(["none", "lstm", "mingru"]),
    action=st.sampled_from([DISCRETE, BOX]),
)
def test_every_value_is_allowed_and_has_a_reason(
    total: int, cost: str, length: int | None, agents: int, core: str, action: ActionSpec
) -> None:
    values = derive(
        facts(
            total_timesteps=total,
            step_cost=cost,
            episode_length=length,
            agents=agents,
            core=core,
            action=action,
        )
    )
    for path, (given_value, reason) in values.items():
        assert path in keys()
        check_value(path, given_value, "")
        assert reason
    batch = values["trainer.batch_size"][0]
    rows = values["env.num_envs"][0] * agents * values["trainer.bptt_horizon"][0]
    assert batch >= rows, "a rollout holds one segment of each agent"


@pytest.mark.parametrize("total", [6_000, 20_000, 50_000, 10**6, 10**8])
def test_a_budget_is_many_updates(total: int) -> None:
    assert total / value("trainer.batch_size", total_timesteps=total, step_cost="cheap") >= 11


def test_larger_batches_only_where_stepping_is_cheap_and_the_budget_long() -> None:
    def sizes(path: str, total: int) -> list[int]:
        return [value(path, total_timesteps=total, step_cost=cost) for cost in STEP_COSTS]

    assert sizes("trainer.batch_size", 50_000) == [2048] * 3
    for path in ("trainer.batch_size", "env.num_envs"):
        cheap, medium, slow = sizes(path, 50_000_000)
        assert cheap > medium > slow


def test_discount_follows_the_episode() -> None:
    gammas = [value("trainer.gamma", episode_length=length) for length in (1, 200, 500, 1000, 10_000)]
    assert gammas == [0.95, 0.975, 0.99, 0.995, 0.995]
    assert value("trainer.gamma") == 0.99


def test_noise_lasts_for_continuous_actions_in_long_episodes() -> None:
    assert "trainer.noise_color" not in derive(facts())
    assert value("trainer.noise_color", action=BOX, episode_length=1) == 0
    assert value("trainer.noise_color", action=BOX, episode_length=999) > 0


def test_only_floating_point_observations_are_normalized() -> None:
    assert value("policy.normalize_obs") is True
    assert "policy.normalize_obs" not in derive(facts(obs={"obs": Leaf((12,), "uint8")}))


def test_a_core_learns_from_segments() -> None:
    assert value("trainer.bptt_horizon") == 1
    assert value("trainer.bptt_horizon", core="lstm") == 32


def test_a_name_changes_nothing() -> None:
    spec = EnvSpec(name="another", agents_per_env=1, obs={"obs": Leaf((4,), "float32")}, action=DISCRETE)
    assert derive(facts(spec=spec)) == derive(facts())


def test_many_agents_leave_enough_updates() -> None:
    assert value("trainer.batch_size", given={"env.num_envs": 512}, total_timesteps=50_000) <= 50_000 // 16
    assert value("trainer.batch_size", given={"env.num_envs": 512}, total_timesteps=10**7) == 512 * 64


def test_small_networks_learn_on_the_cpu() -> None:
    assert value("trainer.device") == "cpu"
    large = {"obs": Leaf((84, 84, 4), "uint8")}
    for other in ({"core": "lstm"}, {"own_policy": True}, {"obs": large}, {"given": {"env.device": "cuda"}}):
        assert "trainer.device" not in derive(facts(**other))


def test_bytes_are_learned_from_in_larger_minibatches() -> None:
    symbols = {"obs": Leaf((12,), "uint8")}
    assert value("trainer.minibatch_size") == 64
    assert value("trainer.minibatch_size", obs=symbols) == 256
    assert value("trainer.learning_rate", obs=symbols) > value("trainer.learning_rate")


@given(total=st.integers(1, 10**10), agents=st.integers(1, 9))
def test_many_environments_step_on_a_gpu_that_was_typed(total: int, agents: int) -> None:
    typed = {"env.device": "cuda"}
    plain = facts(agents=agents, total_timesteps=total, given=typed)
    here = replace(plain, spec=replace(plain.spec, gpu=True))
    chosen = {path: value for path, (value, _) in derive(here).items()}
    rows = chosen["env.num_envs"] * agents
    assert chosen["trainer.batch_size"] >= rows * chosen["trainer.bptt_horizon"]
    assert chosen["trainer.batch_size"] >= 4 * chosen["trainer.minibatch_size"]
    assert rows > 150
    assert "trainer.device" not in chosen
    assert derive(plain)["env.num_envs"][0] <= 128, "it cannot step there"
    assert derive(replace(here, given={}))["env.num_envs"][0] <= 128, "the machine decides nothing"
