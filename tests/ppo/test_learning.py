"""Tests that the whole loop learns: it solves the counter in seconds, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.errors import UserError
from metta_fast.envs.counter import CounterFactory
from metta_fast.policy import make_policy
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_rollout import weights


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_the_counter_is_solved(core: str) -> None:
    """Always right is 64 steps of reward 1; a random agent has half of it."""
    factory = CounterFactory(max_steps=64, goal=2)
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=32, core=core), factory.spec)
    ppo = make_ppo(
        factory,
        64,
        horizon=32,
        bptt=16,
        minibatches=4,
        blocks=2,
        policy=policy,
        gamma=0.9,
        learning_rate=5e-3,
        entropy_coef=0.01,
        vf_clip_coef=0.2,
        update_epochs=4,
        total_timesteps=60_000,
    )
    run(ppo, 29)
    metrics = ppo.metrics()
    assert metrics["env/return"] > 62
    assert metrics["env/return"] == pytest.approx(metrics["env/right"])
    assert metrics["env/length"] == 64


def test_compiled_is_eager_up_to_rounding() -> None:
    eager, compiled = (run(make_ppo(tickers(4), compile=on), 2) for on in (False, True))
    torch.testing.assert_close(weights(eager), weights(compiled), rtol=1e-4, atol=1e-5)


def test_a_compiler_that_changes_the_policy_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that loses a byte would: everything else looks well."""

    def wrong(act: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def compiled(obs: dict[str, torch.Tensor], *rest: Any) -> Any:
            return act({name: leaf.clamp(max=0.5) for name, leaf in obs.items()}, *rest)

        return compiled

    monkeypatch.setattr(torch, "compile", wrong)
    policy = make_policy(PolicyConfig(hidden_size=32), CounterFactory().spec)
    ppo = make_ppo(CounterFactory(), 64, policy=policy, compile=True)
    with pytest.raises(UserError, match=r"torch\.compile changes the policy.*trainer\.compile=false"):
        ppo.collect()
