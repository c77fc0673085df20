"""Tests environments on the policy's device: same buffers, weights and metrics as with any other vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.device_ppo import DevicePPO
from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.envs import make_factory
from tests.cuda.engines import gpu_vector, needs_compiler
from tests.ppo.device_vector import DeviceVector
from tests.ppo.envs import counted, tickers
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
    factory: Any,
    *,
    horizon: int = 16,
    bptt: int = 8,
    minibatches: int = 2,
    lstm: bool = False,
    ahead: bool = False,
    hooks: Hooks | None = None,
    vec: Any = None,
    **keys: Any,
) -> PPO:
    spec = factory.spec
    vec = vec or DeviceVector(factory)
    batch = vec.num_agents * horizon
    config = make_config(batch_size=batch, minibatch_size=batch // minibatches, bptt_horizon=bptt, **keys)
    torch.manual_seed(0)
    policy = TinyPolicy(spec, lstm=lstm)
    ppo = DevicePPO(config, spec, vec, policy, device=torch.device("cpu"), hooks=hooks)
    ppo._may_go_ahead = ahead  # False: the buffers can be looked at after an update
    return ppo


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


@pytest.mark.parametrize("lstm", [False, True])
def test_a_rollout_ahead_changes_nothing(lstm: bool) -> None:
    keys: dict[str, Any] = {"lstm": lstm, "deterministic": True, "normalize_reward": True}
    ahead, plain = device_ppo(tickers(5), ahead=True, **keys), make_ppo(tickers(5), **keys)
    for _ in range(4):
        for ppo in (ahead, plain):
            ppo.collect()
            ppo.update()
        same(ahead.state_dict(), plain.state_dict())
        same(ahead.env_state()(), plain.env_state()())
        assert figures(ahead) == figures(plain)


def same(a: Any, b: Any) -> None:
    """Nested states are equal to the bit."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, np.ndarray):
        assert np.array_equal(a, b)
    else:
        assert a == b


def figures(ppo: PPO) -> dict[str, float]:
    return {name: value for name, value in ppo.metrics().items() if not name.startswith("perf/")}


def test_statistics_of_episodes() -> None:
    factory = counted(
        make_factory(EnvConfig(agents_per_env=2, max_steps=20, params={"map": "arena", "room_size": [8, 8]})),
        4,
    )
    device, plain = device_ppo(factory), make_ppo(factory)
    for _ in range(3):
        for ppo in (device, plain):
            ppo.collect()
            ppo.update()
    a, b = device.metrics(), plain.metrics()
    assert "env/hearts" in b
    assert {k: v for k, v in a.items() if "perf" not in k} == {k: v for k, v in b.items() if "perf" not in k}


def grid(max_steps: int, num_envs: int = 4) -> Any:
    params = {"map": "rooms", "rooms": [1, 2], "room_size": [5, 5], "objects": {"mine_red": 2}}
    env = EnvConfig(agents_per_env=2, max_steps=max_steps, params=params, observation="compact")
    return counted(make_factory(env), num_envs)


@pytest.mark.parametrize(("max_steps", "builds"), [(20, 1), (15, 1), (14, 2), (5, 3), (1, 8)])
def test_maps_are_built_as_seldom_as_episodes_allow(max_steps: int, builds: int) -> None:
    ppo = device_ppo(grid(max_steps))
    for epoch in range(1, 4):
        ppo.collect()
        ppo.update()
        assert ppo.vec.builds == epoch * builds


@needs_compiler
@pytest.mark.parametrize("max_steps", [3, 9, 23])
def test_the_engines_kernels_and_a_resume_in_the_middle(max_steps: int) -> None:
    """Emulated: epochs as with environments on the CPU to the bit, also of a run that goes on from a checkpoint,
    with none of the maps that were built ahead."""
    factory = grid(max_steps, num_envs=3)
    keys: dict[str, Any] = {"deterministic": True, "normalize_reward": True}

    def made() -> PPO:
        return device_ppo(factory, vec=gpu_vector("emulated", factory, 3), **keys)

    device, plain = made(), make_ppo(factory, **keys)
    for epoch in range(4):
        for ppo in (device, plain):
            ppo.collect()
            ppo.update()
        same(device.state_dict(), plain.state_dict())
        environments = device.vec.state_dict()
        same(environments["envs"], plain.vec.state_dict()["envs"])
        if epoch in (0, 2):
            state, device = device.state_dict(), made()
            device.vec.load_state_dict(environments)
            device.load_state_dict(state)


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


def test_an_extra_loss_gets_the_minibatch() -> None:
    """Also where the update was to be a graph: it falls back, and says so."""
    seen = []

    def extra(batch: Any, output: Any) -> torch.Tensor:
        seen.append(batch.mask.shape)
        return output.value.square().mean() * 0.0

    ppo = device_ppo(tickers(4), hooks=Hooks(extra_loss=[extra]), cuda_graphs=True)
    ppo.rollout._run.enabled = False  # no card here
    ppo.collect()
    ppo.update()
    assert seen == [(8, 4)] * 2
    assert ppo.notes == ["the update runs without a CUDA graph, which is slower: a feature adds to the loss"]


def test_a_fault_is_named_though_the_next_rollout_has_written_over_it() -> None:
    ppo = device_ppo(tickers(4), ahead=True)
    step_row = ppo.vec.step_row
    steps = iter(range(100))

    def faulty(t: int) -> None:
        step_row(t)
        if next(steps) == 5:
            ppo.buffers.reward[t, 1] = float("nan")

    ppo.vec.step_row = faulty
    ppo.collect()
    with pytest.raises(
        NonFiniteError, match="reward is not finite in the rollout of epoch 0: the environment gave it"
    ):
        ppo.update()
