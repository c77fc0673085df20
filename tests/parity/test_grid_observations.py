"""Tests how the observations relate: dense contains tokens; compact is a function of dense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.envs.grid.env import GridSim
from metta_fast.envs.grid.names import OBSERVATIONS
from tests.cuda.engines import ENGINES, has_compiler, observed_by_warps
from tests.parity.grid_cases import Actor, Case, cases, record
from tests.reference import grid_observe_reference as observe
from tests.reference.grid_reference import GridReference, read_config


def played(case: Case, actor_seed: int, steps: int = 12) -> GridSim:
    """A native env after some steps that did something."""
    native = GridSim(case.config, case.table, seed=case.seed, env_id=case.env_id)
    native.reset()
    plain = GridReference(case.config, case.table, seed=case.seed, env_id=case.env_id)
    plain.reset()
    actor = Actor(actor_seed)
    for _ in range(steps):
        actions = actor.act(plain)
        native.step(actions)
        plain.step(actions)
    return native


@given(cases(), st.integers(0, 2**32 - 1))
def test_relations(case: Case, actor_seed: int) -> None:
    native = played(case, actor_seed)
    tokens, dense = native.observe("tokens"), native.observe("dense")
    complete = (tokens[:, -1] == observe.EMPTY).all(axis=1)
    from_tokens = observe.dense_of_tokens(tokens)
    np.testing.assert_array_equal(from_tokens[complete], dense[complete], err_msg="nothing was dropped")
    given_by_tokens = from_tokens != 0
    np.testing.assert_array_equal(
        from_tokens[given_by_tokens], dense[given_by_tokens], err_msg="tokens are a part"
    )
    np.testing.assert_array_equal(native.observe("compact"), observe.compact(dense, read_config(case.config)))


@pytest.mark.parametrize("engine", ENGINES)
@given(cases(), st.integers(0, 2**32 - 1), st.sampled_from((1, 2, 3, 8)))
def test_lanes(engine: str, case: Case, actor_seed: int, warps: int) -> None:
    """The work split over the lanes of a GPU's warps writes the same bytes."""
    native = played(case, actor_seed, steps=5)
    for kind in OBSERVATIONS:
        np.testing.assert_array_equal(
            observed_by_warps(engine, native, kind, warps, case.table), native.observe(kind), err_msg=kind
        )


def test_tokens_beyond_200_are_dropped_from_the_far_end() -> None:
    """A crowded window: the first 200 tokens, nearest cells first."""
    config = record(num_agents=100, room_height=11, room_width=11, count={1: 21})
    native = GridSim(config, seed=3)
    native.reset()
    plain = GridReference(config, seed=3)
    plain.reset()
    tokens = native.observe("tokens")
    np.testing.assert_array_equal(tokens, observe.tokens(plain))
    everything = [observe.all_tokens(plain, agent) for agent in range(100)]
    assert max(map(len, everything)) > observe.NUM_TOKENS, "the map must be crowded enough"
    distances = [abs((t[0] >> 4) - 5) + abs((t[0] & 15) - 5) for t in everything[0]]
    assert distances == sorted(distances)
    if has_compiler():
        np.testing.assert_array_equal(observed_by_warps("emulated", native, "tokens", 4), tokens)


def test_unreached_bytes_are_cleared() -> None:
    """A row that held something else is written in full (here the window is mostly off the map)."""
    config = record(num_agents=1, room_height=1, room_width=1, count={})
    native = GridSim(config, seed=0)
    native.reset()
    for kind, shape in OBSERVATIONS.items():
        first = native.observe(kind)  # written over 0xA5
        assert first.shape == (1, *shape)
    assert (native.observe("tokens")[0, -1] == 255).all()
    dense = native.observe("dense")
    assert (dense[0, 5, 5, :2] == [1, 0]).all()
    assert np.count_nonzero(dense[..., 0]) == 9, "the agent and the eight walls around"
