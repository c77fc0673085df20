"""Compares the native rules with the plain-Python reference step by step.

python -m pytest tests/parity/test_grid_parity.py --hypothesis-profile=thorough --timeout 0
"""

from __future__ import annotations

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from metta_fast.envs.grid.env import GridSim
from metta_fast.envs.grid.names import OBSERVATIONS
from tests.parity.grid_cases import Actor, Case, cases
from tests.reference import grid_observe_reference as observe
from tests.reference import grid_reference as rules
from tests.reference.grid_reference import GridReference

PAD = 5
STEPS, AGENT_STEPS = 70, 400
"""An episode's test lasts at most so many calls, fewer with many agents."""


def pair(case: Case) -> tuple[GridSim, GridReference]:
    """Native and reference env of the same case, both reset."""
    native = GridSim(case.config, case.table, seed=case.seed, env_id=case.env_id)
    native.reset()
    plain = GridReference(case.config, case.table, seed=case.seed, env_id=case.env_id)
    plain.reset()
    return native, plain


def assert_same_state(native: GridSim, plain: GridReference) -> None:
    for name, expected in plain.state().items():
        found = np.asarray(native.views[name]).astype(np.int64)
        np.testing.assert_array_equal(found, expected, err_msg=name)


def assert_same_outcome(native: GridSim, plain: GridReference) -> None:
    """Rewards bit for bit, flags, masks and statistics."""
    np.testing.assert_array_equal(
        native.reward.view(np.uint32), plain.rewards.view(np.uint32), err_msg="reward"
    )
    np.testing.assert_array_equal(native.terminal, plain.terminals, err_msg="terminal")
    np.testing.assert_array_equal(native.truncation, plain.truncations, err_msg="truncation")
    done = plain.terminals | plain.truncations
    np.testing.assert_array_equal(native.mask, ~done, err_msg="mask: False on the true last observation")
    if done.any():
        np.testing.assert_array_equal(native.stats[done], np.array(plain.agent_stat, np.float32)[done])


def assert_same_observations(native: GridSim, plain: GridReference) -> None:
    dense = observe.dense(plain)
    expected = {
        "tokens": observe.tokens(plain),
        "dense": dense,
        "compact": observe.compact(dense, plain.config),
    }
    for kind, value in expected.items():
        np.testing.assert_array_equal(native.observe(kind), value, err_msg=kind)
    kind = list(OBSERVATIONS)[plain.config.observation]
    np.testing.assert_array_equal(
        native.obs, expected[kind].reshape(native.obs.shape), err_msg=f"obs ({kind})"
    )


def assert_caches_follow(native: GridSim, plain: GridReference) -> None:
    """What the native state keeps besides is a function of the rest; bytes of no name are zero."""
    config, views = plain.config, native.views
    dues = [due for due, phase in zip(plain.object_due, plain.object_phase) if phase]
    assert views["cache_next_due"] == min(dues, default=2**31 - 1)
    assert views["cache_completion"] == (510 * plain.step_count + config.max_steps) // (2 * config.max_steps)
    bit = 1 << np.arange(rules.NUM_ITEMS)
    np.testing.assert_array_equal(views["cache_agent_items"], (np.array(plain.agent_item) > 0) @ bit)
    objects = np.array(plain.object_item).reshape(-1, rules.NUM_ITEMS)
    np.testing.assert_array_equal(views["cache_object_items"], (objects > 0) @ bit)

    filled = np.pad(np.array(plain.cell) != 0, PAD)
    bits = np.unpackbits(views["cache_bits"].view(np.uint8), axis=1, bitorder="little")
    np.testing.assert_array_equal(bits[:, : filled.shape[1]], filled, err_msg="cache_bits")
    assert not bits[:, filled.shape[1] :].any()
    plane = np.zeros((config.height, config.width, 3), np.int64)
    for row in range(config.height):
        for col in range(config.width):
            channels = [0] * observe.CHANNELS
            for feature, value in observe.thing_features(plain, row, col):
                channels[feature] = value + (feature == observe.TYPE)
            plane[row, col] = observe.cell_bytes(channels, config)
    plane = np.pad(plane, ((PAD, PAD), (PAD, PAD), (0, 0)))
    np.testing.assert_array_equal(views["cache_plane"], plane, err_msg="cache_plane")

    kept = native.state.copy()
    for view in views.values():
        saved = view.copy()
        view[...] = 0
        view_bytes = native.state.copy()
        view[...] = saved
        kept[view_bytes != native.state] = 0
    assert not kept.any(), "bytes that belong to no view must stay zero"


def play_both(case: Case, actor_seed: int) -> int:
    """Step both over random actions and compare them after each step. Returns how many steps there were.

    Raises:
        AssertionError: they differ.
    """
    native, plain = pair(case)
    actor = Actor(actor_seed)
    assert_same_state(native, plain)
    assert_same_observations(native, plain)
    assert native.first.all()
    assert native.mask.all()
    steps = max(8, min(STEPS, AGENT_STEPS // plain.config.num_agents))
    for call in range(steps):
        actions, was_done = actor.act(plain), plain.pending_reset
        native.step(actions)
        plain.step(actions)
        assert_same_state(native, plain)
        assert_same_outcome(native, plain)
        np.testing.assert_array_equal(native.first, bool(was_done))
        if call % 4 == 0 or was_done or plain.pending_reset:
            assert_same_observations(native, plain)
            assert_caches_follow(native, plain)
    return steps


@given(cases(), st.integers(0, 2**32 - 1))
def test_native_equals_reference(case: Case, actor_seed: int) -> None:
    event(f"map kind {case.config['map_kind']}")
    play_both(case, actor_seed)


@given(cases(), st.integers(1, 1000))
def test_staggered_first_episode(case: Case, total: int) -> None:
    """Env i of n begins its first episode at step i · max_steps / n, and only that one."""
    total += case.env_id
    native = GridSim(case.config, case.table, seed=case.seed, env_id=case.env_id, total_envs=total)
    native.reset(stagger=True)
    plain = GridReference(case.config, case.table, seed=case.seed, env_id=case.env_id)
    plain.reset(start_step=case.env_id * plain.config.max_steps // total)
    actor = Actor(0)
    for _ in range(6):
        actions = actor.act(plain)
        native.step(actions)
        plain.step(actions)
        assert_same_state(native, plain)
        assert_same_outcome(native, plain)


@given(cases(), st.integers(0, 2**32 - 1))
def test_items_are_conserved(case: Case, actor_seed: int) -> None:
    """Items appear and vanish only by recipes, and lasers and armor by attacks."""
    native, plain = pair(case)
    config, actor = plain.config, Actor(actor_seed)
    for _ in range(30):
        held = {
            name: native.views[name].astype(np.int64)
            for name in ("agent_item", "object_item", "object_phase")
        }
        due, hits = native.views["object_due"].copy(), native.views["agent_stat"][:, rules.HITS].sum()
        kinds = native.views["object_type"].copy()
        actions = actor.act(plain)
        native.step(actions)
        plain.step(actions)
        if native.first.all():
            continue
        given = np.zeros(rules.NUM_ITEMS, np.int64)
        lost_at_limit = np.zeros(rules.NUM_ITEMS, np.int64)
        started = np.zeros(rules.NUM_ITEMS, np.int64)
        for j, kind in enumerate(kinds):
            if not any(config.recipe_out[kind]):
                continue
            was, now = held["object_phase"][j], native.views["object_phase"][j]
            fired = due[j] == native.views["step"] and was
            gave = fired and was == rules.CONVERTING
            if gave:
                total = held["object_item"][j] + config.recipe_out[kind]
                given += config.recipe_out[kind]
                lost_at_limit += np.maximum(total - 255, 0)
            if now == rules.CONVERTING and (was != rules.CONVERTING or gave):
                started += config.recipe_in[kind]
        before = held["agent_item"].sum(0) + held["object_item"].sum(0)
        after = native.views["agent_item"].sum(0, dtype=np.int64) + native.views["object_item"].sum(
            0, dtype=np.int64
        )
        spent = before + given - lost_at_limit - started - after
        attacks = native.views["agent_stat"][:, rules.HITS].sum() - hits
        others = np.delete(spent, [rules.ARMOR, rules.LASER])
        assert not others.any(), f"items changed otherwise than by recipe: {spent}"
        assert spent[rules.LASER] == attacks, "each attack that hit costs one laser"
        assert 0 <= spent[rules.ARMOR] <= attacks, "a hit costs at most one armor"


@given(cases(), st.integers(0, 2**32 - 1))
def test_same_tape_same_bytes(case: Case, actor_seed: int) -> None:
    """Two envs of the same seed and id give the same bytes."""
    native, plain = pair(case)
    twin = GridSim(case.config, case.table, seed=case.seed, env_id=case.env_id)
    twin.reset()
    actor = Actor(actor_seed)
    for _ in range(10):
        actions = actor.act(plain)
        native.step(actions)
        twin.step(actions)
        np.testing.assert_array_equal(native.state, twin.state)
        np.testing.assert_array_equal(native.obs, twin.obs)
