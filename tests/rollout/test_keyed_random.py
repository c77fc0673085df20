"""Tests that all 64 bits of a key count, wherever random numbers are keyed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from metta_fast.algorithms.hooks import Context
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.counter import CounterFactory
from metta_fast.inference.players import PolicyPlayer
from metta_fast.policy import make_policy
from metta_fast.runtime import keyed_random
from metta_fast.runtime.keyed_random import Keyed, reseed
from tests.interpreter import gpu

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=gpu)]
SEED = 0x9E3779B97F4A7C15
SEEDS = [SEED, *(SEED ^ 1 << bit for bit in range(64))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("draw", ["uniform", "normal", "order"])
def test_each_bit_of_the_seed_counts(device: torch.device, draw: str) -> None:
    generator = torch.Generator(device)

    def numbers(seed: int) -> tuple[float, ...]:
        if draw == "order":
            order = torch.randperm(500, generator=reseed(generator, seed), device=device)
            return tuple(order.tolist())
        make = torch.rand if draw == "uniform" else torch.randn
        return tuple(make(40, generator=reseed(generator, seed), device=device).tolist())

    found = [numbers(seed) for seed in SEEDS]
    assert len(set(found)) == len(SEEDS)
    assert found == [numbers(seed) for seed in SEEDS]


@pytest.mark.parametrize("before", [0, 1, 15, 16, 4096])
def test_what_was_drawn_before_changes_nothing(before: int) -> None:
    """An odd count of normal numbers leaves one in the generator's state."""
    keyed = Keyed(3, CPU)
    first = torch.randn(33, generator=keyed(1, 2))
    torch.randn(before, generator=keyed(1, 3))
    torch.randn((), generator=keyed._generator)
    assert torch.equal(torch.randn(33, generator=keyed(1, 2)), first)


def test_numbers_are_uniform_and_streams_are_apart() -> None:
    keyed = Keyed(0, CPU)
    draws = torch.stack([torch.rand(4096, generator=keyed(0, epoch)) for epoch in range(64)]).double()
    assert float(draws.mean()) == pytest.approx(0.5, abs=0.003)
    assert float(draws.var()) == pytest.approx(1 / 12, rel=0.01)
    assert float(draws.mean(0).std()) == pytest.approx(1 / (12 * 64) ** 0.5, rel=0.05)
    correlation = torch.corrcoef(draws) - torch.eye(64)
    assert float(correlation.abs().max()) < 0.09


def test_every_consumer_uses_the_whole_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that differ only above bit 32: noise and order (Keyed), features (Context), samples of a player."""
    keys = iter([7, 7 | 1 << 40] * 2)
    monkeypatch.setattr(keyed_random, "mix", lambda *_: next(keys))
    keyed = Keyed(0, CPU)
    assert not torch.equal(torch.rand(9, generator=keyed(0)), torch.rand(9, generator=keyed(0)))
    context = Context(SimpleNamespace(device=CPU), 0, 0, 0.0)  # type: ignore[arg-type]
    one, other = context.generator(0), context.generator(0)
    assert not torch.equal(torch.rand(9, generator=one), torch.rand(9, generator=other))
    spec = CounterFactory().spec
    policy: Any = make_policy(PolicyConfig(hidden_size=8), spec)
    players = [PolicyPlayer(policy, spec, CPU, deterministic=False, seed=seed) for seed in (7, 7 | 1 << 40)]
    draws = [torch.rand(9, generator=player._generator) for player in players]
    assert not torch.equal(*draws)


def test_another_state_of_torchs_generator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed_random._state_after_seeding.cache_clear()
    other = SimpleNamespace(
        manual_seed=lambda _: SimpleNamespace(get_state=lambda: torch.zeros(16, dtype=torch.uint8))
    )
    with monkeypatch.context() as patch:
        patch.setattr(torch, "Generator", lambda *_: other)
        with pytest.raises(RuntimeError, match="unknown way"):
            keyed_random._state_after_seeding()
    keyed_random._state_after_seeding()
