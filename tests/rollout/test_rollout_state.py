"""Tests what a rollout keeps between its rows, segments, epochs and sessions: states, noise, seeds, statistics."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EVAL_SEED_BIT, ActionSpec, EnvSpec, Leaf
from metta_fast.envs.python_env import PythonEnvFactory, env_seed
from metta_fast.rollout import finite_checks
from metta_fast.runtime import keyed_random
from tests.envs.test_python_env import Clock
from tests.ppo.envs import counted, tickers
from tests.ppo.stand_in import make_ppo


def collected(ppo: Any, epochs: int) -> list[dict[str, torch.Tensor]]:
    """Copies of each epoch's rollout; nothing is learned."""
    found = []
    for _ in range(epochs):
        ppo.collect()
        b = ppo.buffers
        found.append(
            {name: getattr(b, name).clone() for name in ("action", "value", "logprob", "reward", "state")}
        )
        ppo.epoch += 1
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("box", [False, True])
def test_each_epoch_and_each_seed_has_noise_of_its_own(box: bool) -> None:
    """A policy that does not change, in states that come back: only the noise can differ."""

    def actions(seed: int) -> list[torch.Tensor]:
        ppo = make_ppo(tickers(4, box=box), horizon=16, seed=seed)
        with torch.no_grad():
            for p in ppo.policy.output.parameters():
                p.zero_()
        found = [rollout["action"] for rollout in collected(ppo, 3)]
        ppo.vec.close()
        return found

    first, again, other = actions(0), actions(0), actions(1)
    for i in range(3):
        assert torch.equal(first[i], again[i])
        assert not torch.equal(first[i], other[i])
        assert not torch.equal(first[i], first[(i + 1) % 3])


@pytest.mark.parametrize("bptt", [2, 4])
def test_each_segment_starts_with_the_state_of_the_rows_before_it(bptt: int) -> None:
    ppo = make_ppo(tickers(5), horizon=8, bptt=bptt, blocks=2, lstm=True)
    for _ in range(3):
        ppo.collect()
        b = ppo.buffers
        assert b.reset[1:8].any()
        for s in range(1, 8 // bptt):
            with torch.no_grad():
                before = ppo.policy(
                    {n: o[: s * bptt] for n, o in b.obs.items()}, b.state[0], b.reset[: s * bptt]
                )
            torch.testing.assert_close(b.state[s], before.state, rtol=1e-5, atol=1e-6)
        ppo.epoch += 1
    ppo.vec.close()


@pytest.mark.parametrize(("saved", "loaded"), [(1, 3), (3, 1), (3, 2), (2, 2)])
def test_a_resume_with_another_number_of_blocks_goes_on_with_each_agents_state(
    saved: int, loaded: int
) -> None:
    unbroken = make_ppo(tickers(5), horizon=8, bptt=4, blocks=saved, lstm=True)
    collected(unbroken, 2)
    state, env = copy.deepcopy(unbroken.rollout.state_dict()), copy.deepcopy(unbroken.vec.state_dict())
    expected = collected(unbroken, 2)
    assert len({tuple(agent.tolist()) for agent in state["state"][0]}) == 5  # agents' states differ
    other = make_ppo(tickers(5), horizon=8, bptt=4, blocks=loaded, lstm=True)
    other.vec.load_state_dict(env)
    assert other.rollout.load_state_dict(state)
    other.epoch = 2
    for ours, theirs in zip(collected(other, 2), expected):
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-6)
    for ppo in (unbroken, other):
        ppo.vec.close()


def test_a_resume_without_the_environments_state_meets_new_seeds() -> None:
    factory = counted(PythonEnvFactory(Clock), 3)
    seeds = []
    for epoch in (0, 1, 2, 5):
        ppo = make_ppo(factory, horizon=2, bptt=2, seed=11)
        ppo.epoch = epoch
        ppo.collect()
        seeds.append([env.env.seeds[0] for batch in ppo.vec.batches for env in batch.envs])
        ppo.vec.close()
    assert seeds[0] == [env_seed(11, i) for i in range(3)]
    assert len({seed for found in seeds for seed in found}) == 12


def test_no_epochs_seed_is_one_of_an_evaluation() -> None:
    found = {keyed_random.env_seed(seed, epoch) for seed in (0, 1, 2**62) for epoch in range(200)}
    assert len(found) == 600
    assert all(not seed & EVAL_SEED_BIT for seed in found)


@pytest.mark.parametrize(
    "end", [(True, False), (False, True), (True, True)], ids=["terminal", "truncated", "both"]
)
@pytest.mark.parametrize("zero_copy", [True, False])
def test_statistics_of_episodes_count_whichever_way_they_end(end: tuple[bool, bool], zero_copy: bool) -> None:
    class Same(Clock):
        ends = (end,) * 9

    factory = counted(PythonEnvFactory(Same, stats=("score",)), 4)
    ppo = make_ppo(factory, horizon=8, bptt=8, blocks=2, zero_copy=zero_copy)
    metrics = []
    for _ in range(3):
        ppo.collect()
        ppo.update()
        metrics.append(ppo.metrics())
    ppo.vec.close()
    # rows 0 … 3 are an episode (three steps and the masked last row): two end in each rollout of eight rows
    assert [m["env/score"] for m in metrics] == [5.0, 25.0, 45.0]
    assert [m["env/return"] for m in metrics] == [6.0] * 3
    assert [m["env/length"] for m in metrics] == [3.0] * 3
    assert ppo.buffers.terminal.any() == end[0]
    assert ppo.buffers.truncation.any() == end[1]
    assert np.isfinite(list(metrics[0].values())).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_entry_that_is_not_finite_is_a_fault(value: float) -> None:
    for count in (1, 7, 100):
        array = torch.linspace(-3, 3, count).view(1, -1)
        assert not finite_checks.fault(array)
        array[0, count // 2] = value
        assert finite_checks.fault(array)


def test_a_live_row_needs_a_legal_choice_in_each_head() -> None:
    spec = EnvSpec(
        "masked", 1, {"obs": Leaf((1,), "float32")}, ActionSpec("discrete", (2, 3), (0, 0)),
        action_mask=True, autoreset="same_step", device_rows=True,
    )  # fmt: skip
    b = Buffers.allocate(
        spec, num_agents=6, horizon=1, bptt_horizon=1, state_shape=(0, 0), device=torch.device("cpu")
    )
    masks = ["11 111", "01 100", "00 111", "10 000", "00 000", "00 000"]
    assert b.action_mask is not None
    b.action_mask[0] = torch.tensor([[c == "1" for c in mask if c != " "] for mask in masks])
    b.mask[:] = True
    b.mask[0, 5] = False
    assert finite_checks.illegal_rows(b, spec).tolist() == [[False, False, True, True, True, False]]
