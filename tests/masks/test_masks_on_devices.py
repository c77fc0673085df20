"""Tests masks where rows are copied to a GPU, replayed in CUDA graphs, or made on the learner's device.

Those marked `gpu` need a card:  python -m pytest -m gpu tests/masks
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.c.mlp_update import C_UPDATE
from metta_fast.algorithms.ppo.fast_paths import LOSS_KERNELS, situation_of
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from metta_fast.rollout.c_rollout import C_ROLLOUT
from metta_fast.rollout.fast_paths import FUSED_ACT
from metta_fast.runtime.fast_paths import without_triton
from tests.device_envs import TorchFactory
from tests.masks.masked_env import SPACES, MaskedEnv
from tests.ppo.stand_in import make_config, make_ppo
from tests.rollout.test_device_envs import made

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
DEVICES = [("cpu", False), *(pytest.param("cuda", graphs, marks=GPU) for graphs in (False, True))]


def host_ppo(name: str, device: str, **keys: Any) -> Any:
    """Environments on the CPU, which raise on an illegal action."""
    factory = PythonEnvFactory(lambda index: MaskedEnv(SPACES[name], "info", "parts"), action_mask="info")
    torch.manual_seed(1)
    policy = make_policy(PolicyConfig(hidden_size=16), factory.spec)
    sizes: dict[str, Any] = {"num_envs": 8, "blocks": 2, "horizon": 12, "bptt": 4, "minibatches": 2}
    return make_ppo(factory, policy=policy, device=device, **sizes, **keys)


def check_rollout(ppo: Any) -> None:
    b = ppo.buffers
    live = b.mask[: b.horizon]
    assert b.logprob[live].isfinite().all()
    for i, head in enumerate(b.action_mask[: b.horizon].split(ppo.spec.action.nvec, -1)):
        chosen = head.gather(-1, b.action[..., i : i + 1].long())[..., 0]
        assert chosen[live].all()


@pytest.mark.parametrize("name", ["discrete", "heads", "mixed"])
@pytest.mark.parametrize(
    "keys",
    [
        {"cuda_graphs": True},
        {"cuda_graphs": False},
        {"cuda_graphs": False, "cpu_offload": True},
        {"cuda_graphs": True, "zero_copy": False, "backend": "workers", "workers": 2},
    ],
    ids=["graphs", "launches", "offload", "workers"],
)
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_masks_are_copied_to_the_card(name: str, keys: dict[str, Any]) -> None:
    ppo = host_ppo(name, "cuda", **keys)
    for _ in range(4):
        ppo.collect()
        check_rollout(ppo)
        ppo.update()
    assert all(weight.isfinite().all() for weight in ppo.policy.parameters())
    ppo.vec.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["heads", "mixed"])
def test_the_card_computes_the_cpus_loss(name: str) -> None:
    """The same rows and weights give the same log-probabilities and entropies."""
    ppo = host_ppo(name, "cuda", cuda_graphs=False)
    ppo.collect()
    b, policy = ppo.buffers, ppo.policy
    found = []
    for device in ("cuda", "cpu"):
        policy.to(device)
        obs = {leaf: rows[: b.horizon].to(device) for leaf, rows in b.obs.items()}
        out = policy(obs, policy.initial_state(8, torch.device(device)), b.reset[: b.horizon].to(device))
        masked = policy.head.masked(out.params, b.action_mask[: b.horizon].to(device))
        found.append([one.cpu() for one in policy.head.logprob_entropy(masked, b.action.to(device))])
    ppo.vec.close()
    live = b.mask[: b.horizon].cpu()
    torch.testing.assert_close(found[0][0][live], b.logprob.cpu()[live], atol=2e-3, rtol=2e-3)
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours[live], theirs[live], atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(("device", "graphs"), DEVICES)
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_mixed_actions_on_the_learners_device(device: str, graphs: bool, autoreset: str) -> None:
    factory = TorchFactory("cart-pole", masks=True, autoreset=autoreset)
    factory.spec = replace(
        factory.spec, action=ActionSpec("mixed", nvec=(2,), start=(0,), low=(0.0,), high=(2.0,))
    )
    ppo = made(factory, 16, device=device, cuda_graphs=graphs, max_grad_norm=0.5)
    for _ in range(6):
        ppo.collect()
        check_rollout(ppo)
        ppo.update()
    assert ppo.vec.illegal == 0
    assert not ppo.buffers.action_mask.all()


@pytest.mark.parametrize("name", ["heads", "mixed"])
def test_fast_paths_without_masks_say_so(name: str) -> None:
    factory = PythonEnvFactory(lambda index: MaskedEnv(SPACES[name], "method"))
    policy, config = make_policy(PolicyConfig(hidden_size=16), factory.spec), make_config(cuda_graphs=True)
    for device, paths in (("cpu", (C_ROLLOUT, C_UPDATE)), ("cuda", (FUSED_ACT, LOSS_KERNELS))):
        situation = situation_of(policy, config, factory.spec, torch.device(device), Hooks())
        for path in paths:
            why = path.why_not(situation)
            assert why in ("the environment gives action masks", without_triton(situation) or ""), path.name
