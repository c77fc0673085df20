"""The replay buffer beside a list of Python transitions: ends, limits, n steps, wrap-around, resets, files."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.buffers.replay import Replay
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.runtime.replay_files import ReplayFiles
from metta_fast.storage import checkpoint
from metta_fast.storage.altered import WrongState
from tests.run.same import same

GAMMA = 0.9


def spec(autoreset: str = "next_step", **keys) -> EnvSpec:
    return EnvSpec(
        name="rows",
        agents_per_env=1,
        obs={"obs": Leaf((2,), "float32"), "pixels": Leaf((2, 2), "uint8")},
        action=ActionSpec("box", low=(-1.0,), high=(1.0,)),
        autoreset=autoreset,
        has_final_obs=autoreset == "next_step",
        **keys,
    )


@dataclass
class Row:
    """One row of one agent, as the contract has it."""

    number: float
    mask: bool
    reset: bool
    reward: float = 0.0
    terminal: bool = False
    truncation: bool = False


@dataclass
class World:
    """Makes rows of one agent at random, with next-step or same-step resets."""

    rng: random.Random
    next_step: bool
    rows: list[Row] = field(default_factory=list)

    def restart(self) -> None:
        self.rows.append(Row(self.rng.random(), True, True))

    def step(self) -> None:
        """Acts on the last row, and adds the one below."""
        row, rng = self.rows[-1], self.rng
        if not row.mask:
            self.restart()
            return
        row.reward = rng.random()
        end = rng.choice(["goes on", "goes on", "goes on", "terminal", "limit"])
        row.terminal, row.truncation = end == "terminal", end == "limit"
        if end == "goes on":
            self.rows.append(Row(rng.random(), True, False))
        elif self.next_step:
            self.rows.append(Row(rng.random(), False, False))
        else:
            self.restart()


def reference(rows: list[Row], at: int, newest: int, n: int, next_step: bool):
    """(weight, R, discount, number of the row after) by going through a list."""
    total, factor, i = 0.0, 1.0, at
    if not rows[at].mask:
        return 0.0, None, None, None
    for k in range(n):
        row = rows[i]
        cut = row.truncation and not row.terminal and not next_step
        if i >= newest or (k and not row.mask) or cut:
            break
        total += factor * row.reward
        factor *= GAMMA * (not row.terminal)
        i += 1
        if row.terminal or row.truncation:
            break
    if i == at:
        return 0.0, None, None, None
    return 1.0, total, factor, None if factor == 0 else rows[i].number


def buffers_of(worlds: list[World], start: int, rows: int, kind: EnvSpec) -> Buffers:
    """Rows start … start+rows of all agents, as a rollout leaves them."""
    b = Buffers.allocate(
        kind,
        num_agents=len(worlds),
        horizon=rows,
        bptt_horizon=rows,
        state_shape=(0, 0),
        device=torch.device("cpu"),
    )
    for n, world in enumerate(worlds):
        for t in range(rows + 1):
            row = world.rows[start + t]
            b.obs["obs"][t, n], b.obs["pixels"][t, n] = row.number, int(255 * row.number)
            b.mask[t, n], b.reset[t, n] = row.mask, row.reset
            if t < rows:
                b.action[t, n] = -row.number
                b.reward[t, n], b.terminal[t, n], b.truncation[t, n] = (
                    row.reward,
                    row.terminal,
                    row.truncation,
                )
    return b


def filled(seed: int, agents: int, keep: int, epochs: list[int], n: int, next_step: bool, slack: int = 6):
    """A replay buffer after these rollouts (0: the environments are reset first), and the worlds."""
    kind = spec("next_step" if next_step else "same_step")
    replay = Replay(
        kind, num_agents=agents, rows=keep, slack=slack, gamma=GAMMA, n_step=n, device=torch.device("cpu")
    )
    worlds = [World(random.Random(seed * 10 + i), next_step) for i in range(agents)]
    for world in worlds:
        world.restart()
    added = 0
    for rows, before in zip(epochs, [1, *epochs]):
        if rows == before == 0:
            continue  # nothing was added since the last reset
        if rows == 0:
            replay.cut()
            for world in worlds:
                if added:
                    above, last = world.rows[-2], world.rows[-1]
                    above.truncation |= above.mask and not above.terminal
                    last.mask = False
                    world.restart()
            added += added > 0
            continue
        for world in worlds:
            for _ in range(rows):
                world.step()
        replay.add(buffers_of(worlds, added, rows, kind), rows)
        added += rows
    return replay, worlds


EPOCHS = st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(lambda e: any(e) and e[-1] > 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 14), EPOCHS, st.integers(1, 4), st.booleans())
def test_every_place_is_the_lists_transition(seed, agents, keep, epochs, n, next_step):
    if not next_step:
        epochs = [
            rows for rows in epochs if rows
        ]  # same-step vectors go on after a reset only from a checkpoint
    replay, worlds = filled(seed, agents, keep, epochs, n, next_step)
    newest = len(worlds[0].rows) - 1
    assert replay.added == newest
    assert replay.start == max(0, newest - keep)
    assert replay.size == (newest - replay.start) * agents
    for row in range(replay.start, newest):
        index = torch.tensor([row % replay.places * agents + i for i in range(agents)])
        left = torch.full((agents,), min(n, newest - row))
        found = replay.gather(index, left)
        for i, world in enumerate(worlds):
            weight, total, factor, after = reference(world.rows, row, newest, n, next_step)
            assert found.weight[i] == weight
            if not weight:
                continue
            assert found.obs["obs"][0, i, 0] == pytest.approx(world.rows[row].number)
            assert found.obs["pixels"][0, i, 0, 0] == int(255 * world.rows[row].number)
            assert found.action[i, 0] == pytest.approx(-world.rows[row].number)
            assert found.reward[i] == pytest.approx(total, abs=1e-6)
            assert found.discount[i] == pytest.approx(factor, abs=1e-6)
            if after is not None:
                assert found.next_obs["obs"][0, i, 0] == pytest.approx(after)


def test_samples_are_of_all_places_alike_and_of_no_other():
    replay, _ = filled(3, 2, 7, [6, 6, 5], 2, True)
    index, left = replay.sample((40_000,), torch.Generator().manual_seed(0))
    rows = index // 2
    allowed = sorted({row % replay.places for row in range(replay.start, replay.added)})
    assert sorted(set(rows.tolist())) == allowed
    counts = torch.bincount(index)[[p * 2 + i for p in allowed for i in (0, 1)]]
    assert counts.min() > 0.9 * 40_000 / 14
    newest = rows == (replay.added - 1) % replay.places
    assert set(left[newest].tolist()) == {1}
    assert set(left[~newest].tolist()) == {2}


def test_a_rewound_buffer_is_that_of_the_boundary():
    whole, _ = filled(5, 2, 9, [6, 6, 4, 3], 2, True)
    again, _ = filled(5, 2, 9, [6, 6, 4], 2, True)
    position = again.position()
    later, worlds = filled(5, 2, 9, [6, 6, 4, 6], 2, True)
    assert later.rewind(position)
    later.add(buffers_of(worlds, 16, 3, later.spec), 3)
    assert later.position() == whole.position()
    for row in range(whole.start, whole.added):
        index, left = torch.tensor([row % whole.places * 2]), torch.tensor([min(2, whole.added - row)])
        same(vars(later.gather(index, left)), vars(whole.gather(index, left)))
    assert not later.rewind({"added": 2, "first": 0, "open": 1})


def saved(folder, files: ReplayFiles, step: int) -> checkpoint.Checkpoint:
    states = {"algorithm": {"step": step}, "env": None, **files.states()}
    return checkpoint.read(checkpoint.save(folder, step, states, {}))


def test_checkpoints_share_files_of_rows_that_never_change(tmp_path):
    replay, worlds = filled(1, 2, 64, [6] * 3, 1, True)
    files = ReplayFiles(replay)
    assert files.segment == 2
    first = saved(tmp_path, files, 1)
    for world in worlds:
        for _ in range(6):
            world.step()
    replay.add(buffers_of(worlds, 18, 6, replay.spec), 6)
    second = saved(tmp_path, files, 2)
    shared = [
        name
        for name in second.kept()
        if (tmp_path / f"step_{1:012d}" / f"{name}.pt").exists()
        and (tmp_path / f"step_{1:012d}" / f"{name}.pt").samefile(second.path / f"{name}.pt")
    ]
    assert len(shared) == 8  # of 12 files, all that were complete then
    checkpoint.prune(tmp_path, 1)
    assert not first.path.exists()
    fresh, _ = filled(9, 2, 64, [6], 1, True)
    assert ReplayFiles(fresh).load(replay.position(), checkpoint.read(second.path).kept())
    assert fresh.position() == replay.position()
    for name in ("mask", "reset", "action", "reward", "terminal", "truncation"):
        same(getattr(fresh, name)[:24], getattr(replay, name)[:24])
    same(fresh.obs["obs"][:25], replay.obs["obs"][:25])  # with the open row


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), EPOCHS)
def test_files_give_back_every_row(tmp_path_factory, seed, keep, epochs):
    replay, _ = filled(seed, 2, keep, epochs, 1, True)
    found = saved(tmp_path_factory.mktemp("c"), ReplayFiles(replay), 1)
    fresh, _ = filled(seed + 1, 2, keep, [6], 1, True)
    assert ReplayFiles(fresh).load(replay.position(), found.kept())
    rows = torch.arange(replay.first, replay.added) % replay.places
    for name in ("mask", "reset", "action", "reward", "terminal", "truncation"):
        same(getattr(fresh, name)[rows], getattr(replay, name)[rows])
    open_row = replay.added % replay.places
    same(fresh.obs["pixels"][open_row], replay.obs["pixels"][open_row])


def test_a_missing_or_altered_file_is_named(tmp_path):
    replay, _ = filled(1, 2, 64, [6] * 3, 1, True)
    files = ReplayFiles(replay)
    kept, position = saved(tmp_path, files, 1).kept(), replay.position()
    without = {name: state for name, state in kept.items() if name != "replay-000003"}
    with pytest.raises(WrongState, match=r"replay-000003 is missing"):
        files.load(position, without)
    state = kept["replay-000002"].make()
    state["reward"] = state["reward"][:1]
    kept["replay-000002"].make = lambda: state
    with pytest.raises(WrongState, match="reward has the shape"):
        files.load(position, kept)


def test_without_files_it_is_empty_and_goes_on_counting():
    replay, _ = filled(1, 2, 64, [6, 6], 1, True)
    assert not ReplayFiles(replay).load(replay.position(), {})
    assert (replay.size, replay.added, replay.is_open) == (0, 12, False)


def test_a_smaller_buffer_takes_the_newest_rows(tmp_path):
    replay, _ = filled(1, 2, 64, [6] * 3, 1, True)
    files = ReplayFiles(replay)
    found = saved(tmp_path, files, 1)
    small, _ = filled(9, 2, 5, [6], 1, True)
    assert ReplayFiles(small).load(files.position(), found.kept())
    assert (small.added, small.start, small.size) == (18, 13, 10)
    rows = torch.arange(13, 18)
    for name in ("mask", "reset", "action", "reward", "terminal", "truncation"):
        same(getattr(small, name)[rows % small.places], getattr(replay, name)[rows % replay.places])
