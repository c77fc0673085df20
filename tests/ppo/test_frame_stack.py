"""Tests policy.frame_stack in PPO: as with stacks made by the environment, and each frame is in the buffers once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation, TransformObservation

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.device_ppo import DevicePPO
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from metta_fast.policy.frame_stack import FrameStack
from tests.policy.frames import stack_rows
from tests.ppo.device_vector import DeviceVector
from tests.ppo.envs import counted, tickers
from tests.ppo.stand_in import make_config, make_ppo
from tests.ppo.test_device_rollout import FIELDS, same
from tests.ppo.test_graph_rollout import graph_ppo
from tests.ppo.test_graph_rollout import same as same_rows
from tests.ppo.test_rollout import weights

ENVS, EPOCHS = 5, 3


class Seeds(gymnasium.Env[np.ndarray, Any]):
    """Random numbers or bytes, of which older ones decide the reward. Episodes of 5 … 11 steps end by both flags."""

    def __init__(self, index: int, *, pixels: bool, discrete: bool = True) -> None:
        self.pixels, self.index = pixels, index
        box: Any = gymnasium.spaces.Box(0, 255, (24, 24, 1), np.uint8)
        self.observation_space = box if pixels else gymnasium.spaces.Box(-9, 9, (3,), np.float32)
        choices: Any = gymnasium.spaces.Discrete(3)
        self.action_space = choices if discrete else gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def _obs(self) -> np.ndarray:
        if self.pixels:
            return self.np_random.integers(0, 256, (24, 24, 1)).astype(np.uint8)
        return self.np_random.normal(size=3).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 12))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        ends, cut = self.left == 0, bool(self.np_random.integers(2))
        return self._obs(), float(self.np_random.normal()), ends and not cut, ends and cut, {}


def ppo_of(factory: Any, policy: PolicyConfig, **keys: Any) -> PPO:
    torch.manual_seed(3)
    made = make_policy(policy, factory.spec)
    return make_ppo(factory, ENVS, policy=made, **keys)


def both(count: int, pixels: bool, discrete: bool, policy: dict[str, Any], **keys: Any) -> tuple[PPO, PPO]:
    """A PPO with policy.frame_stack, and one whose environments stack."""

    def single(index: int) -> Any:
        return Seeds(index, pixels=pixels, discrete=discrete)

    def stacks(index: int) -> Any:
        env: Any = FrameStackObservation(single(index), count, padding_type="zero")
        if not pixels:
            return env
        space = gymnasium.spaces.Box(0, 255, (24, 24, count), np.uint8)
        return TransformObservation(env, lambda obs: np.moveaxis(obs[..., 0], 0, 2), space)

    width = {"hidden_size": 20, **policy}  # no multiple of 8: the update in C is not used
    mine = ppo_of(PythonEnvFactory(single), PolicyConfig(frame_stack=count, **width), **keys)
    return mine, ppo_of(PythonEnvFactory(stacks), PolicyConfig(**width), **keys)


@pytest.mark.parametrize(
    ("count", "pixels", "discrete", "policy", "keys"),
    [
        (4, False, True, {}, {"bptt": 1}),
        (3, False, True, {"core": "lstm"}, {"bptt": 8}),
        (6, False, False, {"shared": False}, {"bptt": 4, "update_epochs": 2, "recompute": "pass"}),
        (4, True, True, {}, {"bptt": 2, "recompute": "minibatch", "blocks": 2}),
        (3, True, False, {"core": "mingru"}, {"bptt": 4, "random_shift": 3, "random_shift_coef": 0.5}),
        (20, False, True, {"core": "mingru"}, {"bptt": 4, "horizon": 12}),
    ],
)
def test_same_as_stacks_made_by_the_environment(
    count: int, pixels: bool, discrete: bool, policy: Any, keys: Any
) -> None:
    mine, plain = both(count, pixels, discrete, policy, **keys)
    for _ in range(EPOCHS):
        for ppo in (mine, plain):
            ppo.collect()
        for name in ("reset", "mask", "reward", "terminal", "truncation", "action"):
            assert torch.equal(getattr(mine.buffers, name), getattr(plain.buffers, name)), name
        for name in (
            "value",
            "logprob",
        ):  # the last observation of a cut episode is in row T's, or a masked row's
            one, other = getattr(mine.buffers, name), getattr(plain.buffers, name)
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
        assert mine.buffers.truncation.any()
        assert mine.buffers.terminal.any()
        for ppo in (mine, plain):
            ppo.update()
        torch.testing.assert_close(mine.learner.sums, plain.learner.sums, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(weights(mine), weights(plain), atol=1e-5, rtol=1e-4)
    for ppo in (mine, plain):
        ppo.rollout.vec.close()  # type: ignore[attr-defined]


def test_a_frame_is_in_the_buffers_once() -> None:
    mine, plain = both(4, True, True, {}, bptt=1)
    b = mine.buffers
    frame = ENVS * 24 * 24
    (leaf,) = b.with_past.values()
    assert leaf.untyped_storage().nbytes() == frame * (b.horizon + 1 + 3)
    assert b.obs["obs"].untyped_storage().data_ptr() == leaf.untyped_storage().data_ptr()
    assert b.state.numel() == 0
    for ppo in (mine, plain):
        ppo.rollout.vec.close()  # type: ignore[attr-defined]


def test_values_of_several_agents_are_those_of_plain_stacks() -> None:
    factory: Any = CounterFactory(agents_per_env=3, max_steps=7, dtype="uint8")
    ppo = ppo_of(factory, PolicyConfig(frame_stack=3, hidden_size=16), horizon=8, bptt=2)
    assert isinstance(ppo.policy, FrameStack)
    obs, reset = [], []
    for _ in range(EPOCHS):
        ppo.collect()
        b = ppo.buffers
        obs.append(b.obs["obs"][: b.horizon].numpy().copy())
        reset.append(b.reset[: b.horizon].numpy().copy())
        seen = stack_rows(3, np.concatenate(obs), np.concatenate(reset))[-b.horizon :]
        stacks = {"obs": torch.from_numpy(seen.reshape(*seen.shape[:2], -1))}
        value = ppo.policy.stacked(stacks, torch.zeros(0, b.num_agents, 0), b.reset[: b.horizon]).value
        torch.testing.assert_close(b.value[: b.horizon], value, atol=1e-6, rtol=1e-5)
        ppo.update()
    ppo.rollout.vec.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("core", ["none", "mingru"])
def test_same_with_environments_on_the_policys_device(core: str) -> None:
    factory = tickers(ENVS)
    config = PolicyConfig(frame_stack=4, core=core, hidden_size=16)
    plain = ppo_of(factory, config)
    batch = ENVS * 16
    torch.manual_seed(3)
    device = DevicePPO(
        make_config(batch_size=batch, minibatch_size=batch // 2, bptt_horizon=8),
        factory.spec,
        DeviceVector(factory),
        make_policy(config, factory.spec),
        device=torch.device("cpu"),
    )
    device._may_go_ahead = False
    for _ in range(EPOCHS):
        for ppo in (device, plain):
            ppo.collect()
            ppo.update()
        for name in FIELDS:
            assert torch.equal(getattr(device.buffers, name), getattr(plain.buffers, name)), name
        assert torch.equal(weights(device), weights(plain))


def test_same_with_rows_as_graphs() -> None:
    config = PolicyConfig(frame_stack=4, core="mingru", hidden_size=16)
    keys: dict[str, Any] = {"blocks": 2, "horizon": 12, "bptt": 4, "minibatches": 1}
    ours, plain = (
        make(tickers(ENVS), policy=make_policy(config, tickers(ENVS).spec), **keys)
        for make in (graph_ppo, make_ppo)
    )
    ours.policy.load_state_dict(plain.policy.state_dict())
    for _ in range(EPOCHS):
        for ppo in (ours, plain):
            ppo.collect()
            ppo.update()
        same_rows(ours, plain)
    for ppo in (ours, plain):
        ppo.vec.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("core", ["none", "mingru"])
@pytest.mark.parametrize(
    "keys",
    [
        {"cuda_graphs": True},
        {"cpu_offload": True, "minibatches": 1},  # orders of segments are drawn where the buffers lie
        {"compile": True, "compile_mode": "default", "cuda_graphs": True},
    ],
)
def test_graphs_offload_and_the_compiler_change_nothing_but_rounding(keys: dict[str, Any], core: str) -> None:
    def single(index: int) -> Any:
        return Seeds(index, pixels=True)

    factory, config = PythonEnvFactory(single), PolicyConfig(frame_stack=4, core=core, hidden_size=32)
    plain = {name: keys[name] for name in keys if name == "minibatches"}
    ppos = [ppo_of(factory, config, device="cuda", **more) for more in (keys, plain)]
    for _ in range(EPOCHS):
        for ppo in ppos:
            ppo.collect()
        one, two = (ppo.buffers for ppo in ppos)
        assert torch.equal(one.obs["obs"].cpu(), two.obs["obs"].cpu())
        torch.testing.assert_close(one.value.cpu(), two.value.cpu(), atol=5e-3, rtol=5e-3)
        for ppo in ppos:
            ppo.update()
    apart = (weights(ppos[0]) - weights(ppos[1])).norm() / weights(ppos[1]).norm()
    assert apart < 0.02
    for ppo in ppos:
        ppo.vec.close()


def test_moments_are_of_single_frames_and_a_resume_is_exact() -> None:
    config = PolicyConfig(frame_stack=4, hidden_size=16, normalize_obs=True)

    def fresh() -> PPO:
        return ppo_of(counted(tickers(ENVS), ENVS), config, deterministic=True, blocks=2)

    whole, first, second = fresh(), fresh(), fresh()
    for _ in range(2):
        for ppo in (whole, first):
            ppo.collect()
            ppo.update()
    second.rollout.vec.load_state_dict(first.rollout.vec.state_dict())  # type: ignore[attr-defined]
    second.load_state_dict(first.state_dict())
    for ppo in (whole, second):
        ppo.collect()
        ppo.update()
    same(whole.state_dict(), second.state_dict())
    assert whole.policy.normalizer is not None
    assert whole.policy.normalizer.mean.shape == (3,)
    for ppo in (whole, first, second):
        ppo.rollout.vec.close()  # type: ignore[attr-defined]
