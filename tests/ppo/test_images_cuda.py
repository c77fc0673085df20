"""Tests images and symbols on a GPU: gradients in bf16 beside float32; graphs and compiled updates beside plain ones.

python -m pytest -m gpu tests/ppo/test_images_cuda.py
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.algorithms.ppo import PPO
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.sanity.catch import Catch
from metta_fast.policy import Policy, make_policy
from tests.policy.specs import flat_spec, random_obs
from tests.ppo.stand_in import make_ppo
from tests.ppo.test_rollout import weights

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
SPECS = {
    "nature": flat_spec(obs=Leaf((36, 36, 3), "uint8", "image", 2)),
    "impala": flat_spec(obs=Leaf((3, 32, 32), "uint8", "image", 0)),
    "symbols": flat_spec(obs=Leaf((7, 7, 3), "uint8", "symbols", 2, ((0, 10), (0, 5), (0, 3)))),
}
BF16 = 0.05
"""Largest distance of bf16's gradient from float32's, in units of its length. A number has 8 bits there, and some ReLU
near zero open or close."""


@pytest.fixture
def no_tf32() -> Iterator[None]:
    """Products and convolutions in all 32 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
    torch.set_float32_matmul_precision(before)


def policy_of(spec: EnvSpec, name: str) -> Policy:
    torch.manual_seed(0)
    encoder = name if name in ("nature", "impala") else "nature"
    return make_policy(PolicyConfig(hidden_size=32, image_encoder=encoder, symbol_encoder="embedding"), spec)


def gradient(policy: Policy, obs: dict[str, Tensor], *, bf16: bool) -> Tensor:
    """The gradient of a sum of squares of all outputs, as one vector."""
    device = next(policy.parameters()).device
    policy.zero_grad()
    reset = torch.zeros(next(iter(obs.values())).shape[:2], dtype=torch.bool, device=device)
    with torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext():
        out = policy(obs, policy.initial_state(reset.shape[1]).to(device), reset)
    ((100 * out.params - 1).square().mean() + (out.value - 1).square().mean()).backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SPECS)
def test_gradients_in_bf16_are_those_of_float32(name: str, device: str, no_tf32: None) -> None:
    policy = policy_of(SPECS[name], name).to(device)
    obs = {leaf: rows.to(device) for leaf, rows in random_obs(SPECS[name], 4, 8).items()}
    exact, half = (gradient(policy, obs, bf16=bf16) for bf16 in (False, True))
    assert not torch.equal(exact, half)  # the products are under autocast
    assert float((exact - half).norm() / exact.norm()) < BF16


@pytest.mark.parametrize("device", DEVICES)
def test_convolutions_run_in_bf16_and_channels_last(device: str) -> None:
    policy = policy_of(SPECS["nature"], "nature").to(device)
    seen: list[Tensor] = []
    for module in policy.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, inputs, out: seen.append(out))
    gradient(policy, {leaf: x.to(device) for leaf, x in random_obs(SPECS["nature"], 1, 4).items()}, bf16=True)
    assert len(seen) == 3
    for out in seen:
        assert out.dtype == torch.bfloat16
        assert out.is_contiguous(memory_format=torch.channels_last)


def ppo_on_images(**keys: Any) -> PPO:
    factory = PythonEnvFactory(lambda index: Catch())
    policy = policy_of(factory.spec, "nature")
    sizes = {"horizon": 12, "bptt": 4, "minibatches": 2, "blocks": 2, "device": "cuda", "tf32": False}
    return make_ppo(factory, 6, policy=policy, **sizes | keys)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize(
    "fast", [{"cuda_graphs": True}, {"compile": True}, {"cuda_graphs": True, "compile": True}]
)
def test_graphs_and_compiled_updates_give_what_plain_ones_give(fast: dict[str, bool], shift: int) -> None:
    keys = {"random_shift": shift, "random_shift_coef": 1.0}
    ours, plain = ppo_on_images(**fast, **keys), ppo_on_images(**keys)
    for ppo in (ours, plain):
        ppo.collect()
    for name in ("action", "reward", "mask", "reset"):
        assert torch.equal(getattr(ours.buffers, name), getattr(plain.buffers, name)), name
    assert torch.equal(ours.buffers.obs["obs"], plain.buffers.obs["obs"])
    for name in ("logprob", "value"):
        torch.testing.assert_close(
            getattr(ours.buffers, name), getattr(plain.buffers, name), rtol=1e-3, atol=1e-4
        )
    for ppo in (ours, plain):
        ppo.update()
    torch.testing.assert_close(
        weights(ours), weights(plain), rtol=1e-3, atol=1e-2 if "compile" in fast else 1e-4
    )
    for ppo in (ours, plain):  # a graph is captured at its second use
        ppo.collect()
        ppo.update()
        ppo.vec.close()
    if "cuda_graphs" in fast:
        assert ours.notes == []
        assert ours.learner._run.captured
