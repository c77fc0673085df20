"""Replays of both engines pass MettaScope's own compiled reader, and say what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from mettagrid.simulator import Simulator
from mettagrid.simulator.replay_log_writer import ReplayLogWriter

from metta_fast.contracts.env_answers import scripted_player
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.recording import NO_END, Recording, World
from metta_fast.envs import make_factory
from metta_fast.envs.mettagrid.factory import MettaGridFactory
from metta_fast.envs.mettagrid.game import episode_seeds
from metta_fast.episodes.html import page
from metta_fast.episodes.mettascope import check_mettascope, write_mettascope
from metta_fast.episodes.record import record
from metta_fast.inference.players import RandomPlayer
from metta_fast.resolve.compose import compose
from tests.mettagrid.test_rows import chain, simulation

READER = Path(__file__).with_name("read_replay.py")
SEED = 7


def read(path):
    """What MettaScope's reader says of a file."""
    found = subprocess.run(
        [sys.executable, str(READER), str(path)],
        env={**os.environ, "METTASCOPE_SHOW_VALIDATION": "1", "DISPLAY": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return found.stdout + found.stderr


def written(recording, path):
    write_mettascope(recording, path)
    return json.loads(zlib.decompress(path.read_bytes()))


def test_the_engines_replay_is_what_the_packages_writer_writes(tmp_path):
    config = chain()
    factory = MettaGridFactory(config)
    recording = record(factory, RandomPlayer(factory.spec, 1), seed=SEED)
    ours = written(recording, tmp_path / "ours.json.z")
    assert "No validation issues found" in read(tmp_path / "ours.json.z")

    writer, simulator = ReplayLogWriter(str(tmp_path)), Simulator()
    simulator.add_event_handler(writer)
    assert episode_seeds(SEED, 0, 0) == episode_seeds(7, 0, 0)
    sim = simulation(config, 0, simulator)
    for actions in recording.action:
        for agent, chosen in enumerate(actions):
            sim.agent(agent).set_action(factory.action_names[chosen[0]])
        sim.step()
    (path,) = writer.get_written_replay_paths()
    assert ours == json.loads(zlib.decompress(Path(path).read_bytes()))
    assert recording.world.kind == "frames"
    assert len(page(recording)) > 1000


def grid_recording(steps=150):
    words = ["env=grid", f"env.max_steps={steps}", "env.agents_per_env=3", "hardware=cpu"]
    factory = make_factory(compose(words).config.env)
    return record(factory, scripted_player(factory), seed=SEED, about={"env": "grid", "seed": 7})


def at(field, step):
    """The value of a replay's field at a step."""
    if not (isinstance(field, list) and field and isinstance(field[0], list) and len(field[0]) == 2):
        return field
    return next(value for when, value in reversed(field) if when <= step)


def test_the_grids_replay_passes_the_reader_and_says_what_was_recorded(tmp_path):
    recording = grid_recording()
    data = written(recording, tmp_path / "grid.json.z")
    assert "No validation issues found" in read(tmp_path / "grid.json.z")
    tracks, facts = recording.world.tracks, recording.world.facts
    agents = [thing for thing in data["objects"] if thing["type_name"] == "agent"]
    things = [thing for thing in data["objects"] if thing["type_name"] not in ("agent", "wall")]
    assert len(things) == len(facts["object_type"])
    assert sum(thing["type_name"] == "wall" for thing in data["objects"]) == "".join(facts["walls"]).count(
        "#"
    )
    moved = {name for thing in (*agents, *things) for name, value in thing.items() if isinstance(value, list)}
    assert {
        "location",
        "orientation",
        "action_id",
        "action_success",
        "current_reward",
        "is_converting",
    } <= moved
    for step in (0, 7, recording.steps - 1):
        for k, agent in enumerate(agents):
            place = [int(tracks["agent_col"][step + 1, k]), int(tracks["agent_row"][step + 1, k])]
            assert at(agent["location"], step) == place
            assert at(agent["action_id"], step) == recording.action[step, k, 0]
            assert at(agent["action_param"], step) == recording.action[step, k, 1]
            assert at(agent["total_reward"], step) == pytest.approx(recording.returns()[step + 1, k])
        for k, thing in enumerate(things):
            held = [[i, c] for i, c in enumerate(tracks["object_item"][step + 1, k].tolist()) if c]
            series = any(isinstance(value, list) for _, value in thing["inventory"])
            assert (at(thing["inventory"], step) if series else thing["inventory"]) == held


def test_the_reader_notices_a_mistake(tmp_path):
    data = written(grid_recording(5), tmp_path / "grid.json.z")
    data["objects"][-1].pop("action_id")
    (tmp_path / "grid.json.z").write_bytes(zlib.compress(json.dumps(data).encode()))
    assert "missing required fields: action_id" in read(tmp_path / "grid.json.z")


def test_other_environments_have_none(tmp_path):
    no = np.zeros((1, 1))
    empty = Recording({"env": "mine"}, {}, no, no, np.array([NO_END]), np.array([False]), {}, World())
    with pytest.raises(UserError, match="mine is no world of MettaGrid's kind"):
        write_mettascope(empty, tmp_path / "x.json.z")
    with pytest.raises(UserError, match=r"expected a name that ends in \.json\.z"):
        check_mettascope(tmp_path / "x.json")
