"""Environments on the policy's device: the same buffers, weights and figures as with any other vector."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metta_fast.envs import make_factory
from metta_fast.config import EnvConfig
from metta_fast.ppo import PPO
from tests.ppo.device_vector import DeviceVector
from tests.ppo.envs import tickers
from tests.ppo.stand_in import TinyPolicy, make_config, make_ppo

FIELDS = (
    "mask",
    "reset",
    "action",
    "logprob",
    "value",
    "reward",
    "terminal",
    "truncation",
    "advantage",
    "returns",
    "state",
)


def device_ppo(
    factory: Any, *, horizon: int = 16, bptt: int = 8, minibatches: int = 2, lstm: bool = False, **keys: Any
) -> PPO:
    spec = factory.spec
    batch = spec.num_agents * horizon
    config = make_config(batch_size=batch, minibatch_size=batch // minibatches, bptt_horizon=bptt, **keys)
    torch.manual_seed(0)
    policy = TinyPolicy(spec, lstm=lstm)
    return PPO(config, spec, DeviceVector(factory), policy, device=torch.device("cpu"))


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize(
    "keys", [{}, {"advantage": "vtrace"}, {"normalize_reward": True}, {"update_epochs": 2}]
)
def test_same_as_with_a_vector_of_blocks(keys: dict[str, Any], lstm: bool) -> None:
    device, plain = device_ppo(tickers(5), lstm=lstm, **keys), make_ppo(tickers(5), lstm=lstm, **keys)
    for _ in range(4):
        for ppo in (device, plain):
            ppo.collect()
            ppo.update()
        for name in FIELDS:
            assert torch.equal(getattr(device.buffers, name), getattr(plain.buffers, name)), name
        for name, leaf in plain.buffers.obs.items():
            assert torch.equal(device.buffers.obs[name], leaf)
        for a, b in zip(device.policy.parameters(), plain.policy.parameters()):
            assert torch.equal(a, b)
        for name, value in plain.metrics().items():
            if not name.startswith("perf/"):
                assert device.metrics()[name] == value, name
    assert device.steps == plain.steps


def test_statistics_of_episodes() -> None:
    factory = make_factory(
        EnvConfig(num_envs=4, agents_per_env=2, max_steps=20, params={"map": "arena", "room_size": [8, 8]})
    )
    device, plain = device_ppo(factory), make_ppo(factory)
    for _ in range(3):
        for ppo in (device, plain):
            ppo.collect()
            ppo.update()
    a, b = device.metrics(), plain.metrics()
    assert "env/hearts" in b and {k: v for k, v in a.items() if "perf" not in k} == {
        k: v for k, v in b.items() if "perf" not in k
    }


def test_goes_on_from_a_state_of_the_other_kind() -> None:
    device, plain = (
        device_ppo(tickers(5), lstm=True, deterministic=True),
        make_ppo(tickers(5), lstm=True, deterministic=True),
    )
    plain.collect()
    plain.update()
    device.rollout.vec.load_state_dict(plain.rollout.vec.state_dict())
    device.load_state_dict(plain.state_dict())
    for ppo in (device, plain):
        ppo.collect()
        ppo.update()
    for a, b in zip(device.policy.parameters(), plain.policy.parameters()):
        assert torch.equal(a, b)
