"""Compares recordings with the engine: replaying the actions in a fresh env gives every recorded value."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.recording import NO_END, Recording, decode_track, encode_track
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridSim
from metta_fast.envs.grid.recorder import FAILED
from metta_fast.episodes.record import record
from metta_fast.inference.players import RandomPlayer
from tests.episodes.worlds import actions_of, busy_recording


@pytest.fixture(scope="module")
def busy():
    return busy_recording()


@pytest.fixture(scope="module")
def read(busy):
    """The same recording, written and read."""
    return Recording.from_json(json.loads(json.dumps(busy[1].to_json())))


def test_the_recording_is_what_the_engine_does(busy, read):
    factory, _ = busy
    sim = GridSim(factory.record, factory.table, seed=5, env_id=2, total_envs=3)
    sim.reset()
    tracks, objects = read.world.tracks, int(sim.views["num_objects"])
    failed = sim.views["agent_stat"][:, FAILED].copy()
    for step in range(read.steps + 1):
        if step:
            sim.step(actions_of(read)[step - 1])
            assert np.array_equal(sim.reward, read.reward[step - 1])
        for name, track in tracks.items():
            if name == "agent_failed":
                assert np.array_equal(sim.views["agent_stat"][:, FAILED] - failed, track[step])
                failed = sim.views["agent_stat"][:, FAILED].copy()
            else:
                state = sim.views[name] if name.startswith("agent") else sim.views[name][:objects]
                assert np.array_equal(state, track[step]), (step, name)
        ended = sim.terminal | sim.truncation
        assert np.array_equal(ended, read.end == step)
    assert np.all(read.end == read.steps)
    assert not read.terminal.any()
    assert read.world.facts["walls"] == [
        "".join("#" if cell == 1 else "." for cell in row) for row in sim.views["cell"]
    ]
    assert {name: values.tolist() for name, values in read.stats.items()} == {
        name: sim.stats[:, i].tolist() for i, name in enumerate(factory.spec.stats)
    }


def test_the_busy_world_moves_everything(busy):
    """The test above would say little of tracks that never change."""
    tracks = busy[1].world.tracks
    for name, track in tracks.items():
        assert (track != track[0]).any(), name
    assert busy[1].stats["hits"].sum() > 0


def test_writing_and_reading_changes_nothing(busy, read, tmp_path):
    _, recording = busy
    for name in ("action", "reward", "end", "terminal"):
        one, two = getattr(recording, name), getattr(read, name)
        assert one.dtype == two.dtype
        assert np.array_equal(one, two), name
    for name, track in recording.world.tracks.items():
        assert track.dtype == read.world.tracks[name].dtype
        assert np.array_equal(track, read.world.tracks[name])
    assert read.world.facts == json.loads(json.dumps(recording.world.facts))
    recording.save(tmp_path / "r.json")
    assert Recording.load(tmp_path / "r.json").to_json() == recording.to_json()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["uint8", "int32"]).flatmap(
        lambda kind: arrays.arrays(
            kind,
            arrays.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5),
            elements=st.integers(0, 3),
        )
    )
)
def test_any_track_comes_back(track):
    again = decode_track(json.loads(json.dumps(encode_track(track))))
    assert again.dtype == track.dtype
    assert np.array_equal(again, track)


def test_an_environment_without_a_recorder_gives_figures(tmp_path):
    factory = CounterFactory(agents_per_env=2, max_steps=20)
    recording = record(factory, RandomPlayer(factory.spec, 1), seed=4, episode=2)
    assert recording.world.kind == "none"
    assert recording.reward.shape == (20, 2)
    assert np.allclose(recording.returns()[-1], recording.stats["right"])
    assert np.all(recording.end == 20)


def test_an_agent_that_ends_early_gets_nothing_after():
    class Leaving:
        """Agent k ends after k + 1 steps, by the rules; the reward is always 1."""

        num_agents, metadata = 3, {}

        def __init__(self):
            from gymnasium.spaces import Box, Discrete

            self.observation_space, self.action_space = Box(0, 1, (1,)), Discrete(2, start=1)

        def reset(self, seed=None):
            self.step_number = 0
            return np.zeros((3, 1), np.float32), {}

        def step(self, actions):
            assert np.all((actions >= 1) & (actions <= 2))
            self.step_number += 1
            over = np.arange(3) < self.step_number
            return np.zeros((3, 1), np.float32), np.ones(3), over, np.zeros(3, bool), {}

        def close(self):
            pass

    from metta_fast.envs.python_env import PythonEnvFactory

    factory = PythonEnvFactory(lambda index: Leaving(), name="leaving")
    recording = record(factory, RandomPlayer(factory.spec), seed=1)
    assert recording.end.tolist() == [1, 2, 3]
    assert recording.terminal.all()
    assert recording.returns()[-1].tolist() == [1, 2, 3]
    assert recording.actions == {"kind": "discrete", "width": 1, "start": [1]}


def test_what_renders_is_seen(tmp_path):
    class Rendered:
        metadata, render_mode = {}, "rgb_array"

        def __init__(self):
            from gymnasium.spaces import Box, Discrete

            self.observation_space, self.action_space, self.spec = Box(0, 1, (1,)), Discrete(2), None

        def reset(self, seed=None):
            self.count = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.count += 1
            return np.zeros(1, np.float32), 0.5, self.count == 9, False, {}

        def render(self):
            return np.full((30, 40, 3), 20 * self.count, np.uint8)

        def close(self):
            pass

    from metta_fast.envs import frame_recorder as frames
    from metta_fast.envs.python_env import PythonEnvFactory

    factory = PythonEnvFactory(lambda index: Rendered(), name="rendered")
    player = RandomPlayer(factory.spec)
    recording = record(factory, player, seed=1)
    assert recording.world.kind == "frames"
    seen = list(frames.frames(recording))
    assert [int(frame.mean().round()) for frame in seen] == [20 * i for i in range(10)]
    assert {frame.shape for frame in seen} == {(30, 40, 3)}


def test_long_episodes_keep_every_second_image(monkeypatch):
    from metta_fast.envs import frame_recorder as frames

    monkeypatch.setattr(frames, "MOST", 4)
    step = -1
    recorder = frames.FrameRecorder(lambda: np.full((2, 2, 3), step, np.uint8))
    for step in range(21):  # noqa: B007 - read by the renderer
        recorder.see()
    facts = recorder.world().facts
    assert facts["every"] == 8
    assert len(facts["images"]) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": "other"}, "not a recording"), ({"version": 99}, "version 99")],
)
def test_a_foreign_file_is_told(busy, change, message):
    given = copy.copy(busy[1].to_json()) | change
    with pytest.raises(UserError, match=message):
        Recording.from_json(given)


def test_a_file_that_is_none_is_told(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        Recording.load(tmp_path / "a.json")
    with pytest.raises(UserError, match="cannot read"):
        Recording.load(tmp_path / "b.json")


def test_a_cut_episode_has_no_end():
    factory, endless = CounterFactory(max_steps=3), CounterFactory(max_steps=10**6)
    factory.make_batch = endless.make_batch
    recording = record(factory, RandomPlayer(factory.spec), seed=1)
    assert recording.end.tolist() == [NO_END]
    assert recording.steps == 30
    assert recording.to_json()["stats"] == {"right": [None]}


def test_pictures_show_what_moves():
    """Each cell has the colour of what stands in it: walls and floor, and each agent its own."""
    from metta_fast.envs.grid.picture import STRIP, _Painter
    from metta_fast.episodes.views import world_frames

    recording = busy_recording(max_steps=30)[1]
    frames, every = world_frames(recording)
    seen = list(frames)
    assert every == 1
    assert len(seen) == 31
    facts, tracks, cell = recording.world.facts, recording.world.tracks, _Painter(recording).cell
    assert seen[0].shape[0] - STRIP - facts["height"] * cell in (0, 1)
    for step, frame in enumerate(seen):
        colors = {}
        for k in range(recording.agents):
            row, col = int(tracks["agent_row"][step, k]), int(tracks["agent_col"][step, k])
            low = frame[row * cell + int(cell * 0.76), col * cell + cell // 2]
            colors.setdefault(k, set()).add(tuple(low.tolist()))
        assert len(set.union(*colors.values())) == recording.agents
        wall = frame[cell // 2, cell // 2]
        assert wall.tolist() == [0x3B, 0x45, 0x53]


def test_a_world_without_pictures_is_told():
    from metta_fast.episodes.views import world_frames

    factory = CounterFactory(max_steps=3)
    recording = record(factory, RandomPlayer(factory.spec), seed=1, about={"env": "counter"})
    with pytest.raises(UserError, match="counter has no pictures"):
        world_frames(recording)
