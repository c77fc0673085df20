"""The games in C that come with metta_fast: CartPole beside Gymnasium's, the rules of snake and breakout."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metta_fast
from metta_fast import Rows
from metta_fast.envs import GAMES
from metta_fast.resolve.compose import compose
from tests.c_compiler import CC

pytestmark = pytest.mark.skipif(not CC, reason="no C compiler here")
FOLDER = Path(metta_fast.__file__).parent / "envs/games"
UP, RIGHT, DOWN, LEFT = range(4)


class Single:
    """Steps one environment by hand."""

    def __init__(self, name, seed=0, **keys):
        self.factory = metta_fast.folder_factory(FOLDER / name, **keys)
        leaf, spec = self.factory.spec.obs["obs"], self.factory.spec
        flags = np.zeros((4, 1), np.bool_)
        width, stats = spec.action.width, len(spec.stats)
        self.rows = Rows({"obs": np.zeros((1, *leaf.shape), leaf.dtype)}, np.zeros((1, width), spec.action.dtype),
                         np.zeros(1, np.float32), *flags, np.zeros((1, stats), np.float32))  # fmt: skip
        self.batch = self.factory.make_batch(0, 1, 1)
        self.batch.bind(self.rows)
        self.batch.reset(seed)

    def step(self, action):
        self.rows.action[...] = action
        self.batch.step()
        return (
            self.rows.obs["obs"][0].copy(),
            float(self.rows.reward[0]),
            bool(self.rows.terminal[0]),
            bool(self.rows.truncation[0]),
        )


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**63 - 1),
    actions=st.lists(st.integers(0, 1), min_size=60, max_size=300),
    steer=st.booleans(),
    each=st.booleans(),
)
def test_cartpole_equals_gymnasiums(seed, actions, steer, each):
    """Rewards and ends are equal; a step's state is within 1e-13, a whole episode's within 1e-7 (a falling pole
    multiplies a difference by millions), observations within 1e-6 (float32)."""
    mine, theirs = (
        Single("cartpole", seed, max_steps=200),
        gymnasium.make("CartPole-v1", max_episode_steps=200),
    )
    theirs.reset(seed=0)
    state = mine.batch.states[0, :32].view(np.float64)
    assert (np.abs(state) <= 0.05).all()
    theirs.unwrapped.state = state.copy()
    for drawn in actions:
        action = int(state[2] + 0.5 * state[3] > 0) if steer else drawn  # steered, an episode lasts
        obs, *ends = theirs.step(action)[:4]
        found, *found_ends = mine.step(action)
        assert found_ends == ends
        assert np.allclose(found, obs, rtol=0, atol=1e-6)
        assert np.abs(state - theirs.unwrapped.state).max() <= (1e-13 if each else 1e-7)
        if each:
            theirs.unwrapped.state = state.copy()
        if any(ends[1:]):
            assert not mine.rows.mask[0]
            break


def board(single):
    """The board's planes: body, head, food, each [size, size]."""
    return single.rows.obs["obs"][0]


def head_of(single):
    ((row, column),) = np.argwhere(board(single)[1])
    return int(row), int(column)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), size=st.integers(4, 9), actions=st.lists(st.integers(0, 3), max_size=200))
def test_snake_follows_its_rules(seed, size, actions):
    """Beside a snake in Python that is a list of cells."""
    game = Single("snake", seed, size=size, max_steps=10_000)
    row, column = head_of(game)
    cells, heading = [(row, column - k) for k in range(3)], RIGHT
    for action in actions:
        body, _, food = board(game)
        assert {tuple(map(int, cell)) for cell in np.argwhere(body)} == set(cells)
        ((food_row, food_column),) = np.argwhere(food)
        target = int(food_row), int(food_column)
        assert target not in cells
        heading = heading if action == (heading + 2) % 4 else action
        head = (
            cells[0][0] + (heading == DOWN) - (heading == UP),
            cells[0][1] + (heading == RIGHT) - (heading == LEFT),
        )
        eats = head == target
        cells = cells if eats else cells[:-1]
        dies = head in cells or not (0 <= head[0] < size and 0 <= head[1] < size)
        _, reward, terminal, truncation = game.step(action)
        assert (reward, terminal, truncation) == (-1.0 if dies else float(eats), dies, False)
        if dies:
            assert not game.rows.mask[0]
            return
        cells = [head, *cells]
        assert head_of(game) == head


def test_a_full_board_is_won():
    """A snake that follows a round tour of a board of 4×4 eats everything."""
    game = Single("snake", size=4, max_steps=10_000, death_reward=-5.0)
    column_down = {(r, c): RIGHT if r == 0 and c < 3 else None for r in range(4) for c in range(4)}
    tour = {**column_down, (0, 3): DOWN, (1, 3): LEFT, (1, 2): LEFT, (1, 1): DOWN, (2, 1): RIGHT, (2, 2): RIGHT,
            (2, 3): DOWN, (3, 3): LEFT, (3, 2): LEFT, (3, 1): LEFT, (3, 0): UP, (2, 0): UP, (1, 0): UP}  # fmt: skip
    for seed in range(40):
        game.batch.reset(seed)
        if head_of(game)[0] == 0:  # lies along the tour
            break
    for _ in range(300):
        _, reward, terminal, _ = game.step(tour[head_of(game)])
        if terminal:
            assert reward == 1.0
            assert game.rows.stats[0, 0] == 13
            return
    pytest.fail("the board was never full")


@pytest.mark.parametrize("name", GAMES)
def test_it_draws_itself(name):
    """One size, and another picture after a step."""
    game = Single(name)
    recorder = game.factory.make_recorder(game.batch)
    for _ in range(3):
        recorder.see()
        game.step(1)
    facts = recorder.world().facts
    assert facts["height"] >= 200
    assert len(set(facts["images"])) == 3


@pytest.mark.parametrize("name", GAMES)
def test_its_recipe_makes_it(name):
    recipes = [file.stem for file in (FOLDER.parents[1] / "configs/env").glob("*.yaml")]
    recipe = next(recipe for recipe in recipes if recipe in (name, f"{name}_c"))
    config = compose([f"env={recipe}"]).config.env
    assert metta_fast.make_factory(config).spec.name == name
    assert metta_fast.make_factory(config).spec.native


def played_breakout(seed, steps, clumsy=0.0):
    """Plays with a paddle that follows the ball, aims a little beside it and is idle at times. Checks the score."""
    game, rng, aim, score = (
        Single("breakout", seed, max_steps=100_000, repeat=1),
        np.random.default_rng(seed),
        0.0,
        0,
    )
    values = np.repeat([7, 7, 4, 4, 1, 1], 18)
    for step in range(steps):
        seen = board(game)
        if step % 40 == 0:
            aim = rng.uniform(-0.4, 0.4)
        side = seen[5] + aim
        action = 0 if rng.random() < clumsy or abs(side) < 0.06 else 2 if side > 0 else 1
        obs, reward, terminal, _ = game.step(action)
        score += reward
        assert 0 <= obs[0] <= 1 - 36 / 288
        assert 0 <= obs[1] <= 1 - 4 / 288
        assert np.isin(obs[9:], (0, 1)).all()
        assert score == 432 * obs[8] + values[obs[9:] == 0].sum() - (432 if obs[8] == 2 else 0)
        if terminal:
            return obs, score
    return obs, score


def test_a_paddle_that_follows_the_ball_loses_no_life():
    obs, score = played_breakout(1, 6000)
    assert obs[6] == 1
    assert score > 50


def test_an_idle_paddle_loses_five_lives():
    obs, score = played_breakout(2, 6000, clumsy=1.0)
    assert obs[6] == 0
    assert score < 100


def test_both_walls_can_be_cleared():
    obs, score = played_breakout(3, 90_000)
    assert score == 864
    assert obs[8] == 2
