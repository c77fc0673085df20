"""Tests a rollout's rows: their order over epochs and blocks, for any order of arrival."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch

from metta_fast.algorithms.ppo import PPO
from metta_fast.contracts.env import EVAL_SEED_BIT
from metta_fast.runtime.keyed_random import env_seed, mix
from tests.ppo.envs import Ticker, tickers
from tests.ppo.stand_in import TellsReset, check_reset_is_read, make_ppo, run


def expected_rows(index: int, count: int) -> list[tuple[float, float, bool, bool, bool]]:
    """(episode, step, mask, reset, ends) of a Ticker's rows."""
    env, rows = Ticker(index), []
    env.reset()
    while len(rows) < count:
        for step in range(env.length()):
            rows.append((env.episode, step, True, step == 0, step == env.length() - 1))
        rows.append((env.episode, env.length(), False, False, False))
        env.reset()
    return rows[:count]


@pytest.mark.parametrize(("backend", "blocks"), [("serial", 1), ("serial", 3), ("threads", 5)])
def test_every_row_is_where_it_belongs(backend: str, blocks: int) -> None:
    horizon, epochs, envs = 8, 3, 5
    ppo = make_ppo(tickers(envs), horizon=horizon, bptt=8, minibatches=1, blocks=blocks, backend=backend)
    want = [expected_rows(i, horizon * epochs + 1) for i in range(envs)]
    steps = 0
    try:
        for epoch in range(epochs):
            ppo.collect()
            b = ppo.buffers
            for t in range(horizon + 1):
                for i in range(envs):
                    episode, step, mask, reset, _ = want[i][epoch * horizon + t]
                    assert b.obs["obs"][t, i].tolist() == [i, episode, step]
                    assert (bool(b.mask[t, i]), bool(b.reset[t, i])) == (mask, reset)
            for t in range(horizon):
                for i in range(envs):
                    episode, step, mask, _, ends = want[i][epoch * horizon + t]
                    hit = int(b.action[t, i, 0]) == step % 3
                    assert b.reward[t, i] == (step + 10.0 * hit if mask else 0.0)
                    assert bool(b.terminal[t, i]) == (ends and episode % 2 == 0)
                    assert bool(b.truncation[t, i]) == (ends and episode % 2 == 1)
                    steps += mask
            ppo.update()
            assert ppo.steps == steps
    finally:
        ppo.rollout.vec.close()


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


def test_any_backend_and_order_of_arrival_gives_the_same_weights() -> None:
    results = {}
    for backend, workers, threads in (
        ("serial", 1, 1),
        ("threads", 1, 3),
        ("workers", 3, 1),
        ("workers", 2, 1),
    ):
        factory = tickers(6, delay_s=0.0 if backend == "serial" else 0.004)
        ppo = make_ppo(factory, blocks=3, backend=backend, workers=workers, threads=threads, lstm=True)
        results[backend, workers] = weights(run(ppo, 3))
    first, *others = results.values()
    assert all(torch.equal(first, other) for other in others)


def test_the_seed_matters_and_is_all_that_matters() -> None:
    a, b, c = (weights(run(make_ppo(tickers(4), seed=seed), 2)) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize("keys", [{"zero_copy": False}, {"debug": True}])
def test_a_private_copy_or_debug_mode_changes_nothing(keys: dict) -> None:
    assert torch.equal(
        weights(run(make_ppo(tickers(4), blocks=2), 2)),
        weights(run(make_ppo(tickers(4), blocks=2, **keys), 2)),
    )


def test_debug_mode_finds_a_row_nobody_wrote() -> None:
    ppo = make_ppo(tickers(2), debug=True)
    ppo.collect()
    ppo.buffers.logprob[3, 1] = ppo.buffers.advantage[3, 1] = -1.25 * 2.0**100
    with pytest.raises(RuntimeError, match="logprob"):
        ppo.update()
    ppo.rollout.vec.close()


def test_a_policy_without_memory_reads_the_rows_own_reset() -> None:
    check_reset_is_read(
        make_ppo(tickers(5), horizon=12, bptt=4, blocks=2, policy=TellsReset(tickers(5).spec))
    )


def test_a_new_vector_leaves_nothing_of_the_old_rollout() -> None:
    ppo = make_ppo(tickers(4))
    ppo.collect()
    old = weakref.ref(ppo.rollout)
    ppo.rollout.itself = ppo.rollout  # as its CUDA graphs do
    ppo.use(ppo.vec)
    assert old() is None
    ppo.vec.close()


def test_box_actions_reach_the_environment() -> None:
    ppo = make_ppo(tickers(3, box=True), horizon=8, bptt=4)
    ppo.collect()
    assert ppo.buffers.action.dtype == torch.float32
    assert np.array_equal(ppo.rollout.vec.rows.action, ppo.buffers.action[-1].numpy())
    ppo.update()
    ppo.rollout.vec.close()


def test_environments_never_start_from_an_evaluation_seed() -> None:
    """Not at the start, nor anew after a resume."""
    seeds = [env_seed(seed, epoch) for seed in (0, 1, EVAL_SEED_BIT - 1) for epoch in range(200)]
    assert all(0 <= seed < EVAL_SEED_BIT for seed in seeds)
    assert len(set(seeds)) == 600


def test_keys_are_spread() -> None:
    numbers = {mix(seed, stream, epoch) for seed in range(20) for stream in range(4) for epoch in range(50)}
    assert len(numbers) == 4000
    assert max(numbers) > 2**63
