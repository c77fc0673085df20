"""Batched environments on a GPU: the same rows as on the CPU, or as a plain loop on the GPU.

python -m pytest -m gpu tests/batched         # the part in JAX needs jax for this GPU
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from metta_fast.envs.batched.factory import BatchedEnvFactory
from metta_fast.vector import make_vector
from tests.batched.envs import (
    IsaacLabStandIn,
    ManiSkillStandIn,
    Numbers,
    RslRlStandIn,
    Tally,
    by_size,
    vector,
)
from tests.cuda.engines import needs_card
from tests.rollout.test_device_envs import made
from tests.vector.device_suite import HORIZON, Rows, assert_same, attached, play, tape_for

pytestmark = [pytest.mark.gpu, needs_card]
ENVS = 6


def played(factory: BatchedEnvFactory, device: str, length: int = 6 * HORIZON) -> Rows:
    where = torch.device(device, 0) if device == "cuda" else torch.device(device)
    vec: Any = make_vector(factory, ENVS, backend="gpu", device=where)
    b = attached(vec)
    vec.async_reset(5)
    rows = play(vec, b, tape_for(vec.spec, ENVS, length))
    vec.close()
    return rows


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_gymnasium(mode: str) -> None:
    factory = BatchedEnvFactory(lambda num_envs: vector(Tally, num_envs, mode))
    assert_same(played(factory, "cpu"), played(factory, "cuda"))


@pytest.mark.parametrize("kind", [RslRlStandIn, IsaacLabStandIn])
def test_tensors(kind: Callable[[int, str], Any]) -> None:
    """Against the game on the GPU; its numbers are drawn there."""
    env, plain = kind(ENVS, "cuda"), Numbers(ENVS, "cuda")
    env.game.random.manual_seed(9)
    plain.random.manual_seed(9)
    plain.shown = env.game.shown.clone()
    factory = BatchedEnvFactory(env)
    assert factory.tensors_device() == "cuda"
    vec: Any = make_vector(factory, ENVS, backend="gpu", device=torch.device("cuda", 0))
    b = attached(vec)
    if kind is RslRlStandIn:
        vec.async_reset(5)
        for actions in torch.randn(2 * HORIZON, ENVS, 4, generator=torch.Generator().manual_seed(1)):
            (row,) = play(vec, b, actions[None], at=1)
            reward, terminal, late = plain.move(by_size(actions.cuda()))
            plain.restart(terminal | late)
            assert torch.equal(row["reward"], reward.cpu())
            assert torch.equal(row["critic"], plain.look().cpu())
            assert torch.equal(row["truncation"], late.cpu())


def test_training_on_the_card() -> None:
    for env in (ManiSkillStandIn(ENVS, "cuda"), RslRlStandIn(ENVS, "cuda"), vector(Tally, ENVS, "SameStep")):
        ppo = made(
            BatchedEnvFactory(env),
            ENVS,
            horizon=16,
            bptt=16,
            device="cuda",
            ahead=True,
            policy={"shared": False},
        )  # type: ignore[arg-type]
        for _ in range(3):
            ppo.collect()
            ppo.update()
        assert ppo.metrics()["loss/value"] == ppo.metrics()["loss/value"]


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    try:
        jax.devices("gpu")
    except RuntimeError:
        pytest.skip("the installed jax has no GPU")
    from tests.batched.jax_envs import NewTally
    from tests.batched.jax_envs import Tally as InJax

    for env in (InJax(), NewTally()):
        assert_same(played(BatchedEnvFactory(env), "cpu"), played(BatchedEnvFactory(env), "cuda"))
