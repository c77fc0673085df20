"""Tests the grid's configuration struct: the builder's errors and sizes, and its agreement with the C struct."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid import names as grid
from metta_fast.envs.grid._grid import GridParams
from metta_fast.envs.grid.config import grid_config
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.grid.names import GRID_CONFIG, ITEMS, TYPES
from metta_fast.envs.grid.state import AGENT, HEAD, OBJECT
from tests.c_compiler import CC, CXX

ENVS = Path(grid.__file__).resolve().parent.parent
FLAGS = ["-I", str(ENVS / "native"), "-I", str(ENVS / "grid"), "-Wall", "-Wextra", "-Wconversion", "-Werror"]


@pytest.mark.skipif(not CC, reason="no C compiler")
def test_record_is_the_c_struct(tmp_path: Path) -> None:
    fields = "\n".join(f'printf("%zu\\n", offsetof(GridConfig, {name}));' for name in GRID_CONFIG.names)
    source = tmp_path / "offsets.c"
    source.write_text(
        '#include <stdio.h>\n#include <stddef.h>\n#include "grid_rules.h"\n'
        f"int main(void) {{ {fields} return 0; }}\n"
    )
    program = tmp_path / "offsets"
    subprocess.run([*CC, "-std=c11", *FLAGS, str(source), "-o", str(program)], check=True, timeout=60)
    offsets = subprocess.run([program], check=True, capture_output=True, text=True, timeout=10).stdout.split()
    assert [int(offset) for offset in offsets] == [GRID_CONFIG.fields[name][1] for name in GRID_CONFIG.names]


@pytest.mark.skipif(not CXX, reason="no C++ compiler")
def test_rules_compile_alone_as_cpp(tmp_path: Path) -> None:
    source = tmp_path / "rules.cpp"
    source.write_text('#include "grid_rules.h"\n#define MF_ENV grid\n#include "shell.h"\n')
    command = [*CXX, "-std=c++17", *FLAGS, "-c", str(source), "-o", str(tmp_path / "rules.o")]
    subprocess.run(command, check=True, timeout=60)


def test_state_dtypes_have_the_structs_sizes() -> None:
    at = GridParams(*grid_config()).layout()
    assert (HEAD.itemsize, AGENT.itemsize, OBJECT.itemsize) == (at["head"], at["agent"], at["object"])
    assert at["size"] % 64 == 0


def test_arena_of_the_classic_recipe() -> None:
    record, table = grid_config(
        map="arena",
        rooms=[2, 2],
        room_size=[25, 25],
        border=6,
        num_agents=24,
        groups="per_room",
        objects={"mine_red": 10, "generator_red": 5, "altar": 5, "wall": 20, "block": 20},
    )
    assert table is None
    assert (record["height"], record["width"]) == (62, 62)
    assert record["max_objects"] == 4 * (10 + 5 + 5 + 20)
    assert record["group_by_room"] == 1


def test_classic_values() -> None:
    record, _ = grid_config()
    altar, factory = TYPES.index("altar"), TYPES.index("factory")
    assert record["recipe_in"][altar].tolist() == [0, 0, 0, 3, 0, 0, 0, 0, 0, 0]
    assert record["recipe_out"][altar, ITEMS.index("heart")] == 1
    assert record["recipe_out"][factory].tolist() == [0] * 7 + [5, 5, 0]
    assert record["cooldown"].tolist() == [0, 0, 50, 50, 50, 25, 25, 25, 10, 10, 10, 5, 5, 5, 0]
    assert record["item_cap"].tolist() == [50] * 6 + [255] + [50] * 3
    assert record["actions_enabled"] == 0b1111111
    assert record["freeze_duration"] == 10
    assert not record["recipe_out"][[0, 1, 14]].any()


def test_rewards_in_thousandths() -> None:
    record, _ = grid_config(rewards={"heart": 1, "ore_red": {"weight": 0.02, "cap": 0.02}})
    assert record["reward_weight"].tolist() == [20, 0, 0, 0, 0, 0, 1000, 0, 0, 0]
    assert record["reward_cap"][0] == 20
    assert record["reward_cap"][ITEMS.index("heart")] == grid.NO_CAP


def test_recipe_override_keeps_the_rest() -> None:
    record, _ = grid_config(recipes={"altar": {"inputs": {"ore_blue": 2}, "cooldown": 0}})
    altar = TYPES.index("altar")
    assert record["recipe_in"][altar].tolist() == [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    assert record["cooldown"][altar] == 0
    assert record["max_output"][altar] == 5


def test_sizes_of_maps() -> None:
    rooms, _ = grid_config(map="rooms", rooms=[2, 3], room_size=[7, 9])
    assert (rooms["height"], rooms["width"]) == (2 + 14 + 1, 2 + 27 + 2)
    maze, _ = grid_config(map="maze", room_size=[5, 8], border=2, objects={})
    assert (maze["height"], maze["width"]) == (2 + 11, 2 + 17)


def test_ascii_maps(tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    path.write_text("#####\n#@.a#\n#####\n\n####\n#@m \n")
    record, table = grid_config(map=str(path), num_agents=1)
    assert table is not None
    assert table.shape == (2, 3, 5)
    assert (record["num_maps"], record["max_objects"], record["map_kind"]) == (2, 1, 0)
    assert table[0, 1].tolist() == [1, 0, 255, 8, 1]
    assert table[1, 1:].tolist() == [[1, 0, 2, 255, 1], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"map": "arenaa"}, ["arenaa", "arena, rooms, maze"]),
        ({"num_agents": 0}, ["num_agents=0", "from 1"]),
        ({"num_agents": True}, ["num_agents=True"]),
        ({"max_steps": 1.5}, ["max_steps=1.5", "whole number"]),
        ({"objects": {"mine": 3}}, ["mine", "mine_red"]),
        ({"objects": {"agent": 3}}, ["agent", "wall"]),
        ({"objects": {"wall": -1}}, ["objects.wall=-1"]),
        ({"objects": [1]}, ["objects=[1]"]),
        ({"objects": {"wall": 300}}, ["do not fit", "256 free cells", "room_size"]),
        ({"map": "maze", "rooms": [2, 2]}, ["maze", "rooms"]),
        ({"map": "maze", "border": 0}, ["maze", "border"]),
        ({"room_size": [300, 3]}, ["room_size[0]=300"]),
        ({"room_size": 5}, ["room_size=5", "[rows, columns]"]),
        ({"rooms": [20, 20]}, ["400 rooms"]),
        ({"groups": "team"}, ["team", "one, per_room"]),
        ({"observation": "default"}, ["default", "tokens, dense, compact"]),
        ({"rewards": {"gold": 1}}, ["gold", "ore_red"]),
        ({"rewards": {"heart": 0.0001}}, ["rewards.heart.weight=0.0001", "thousandths"]),
        ({"rewards": {"heart": {"cap": 1}}}, ["rewards.heart"]),
        ({"rewards": {"heart": {"weight": 1, "cap": 0}}}, ["rewards.heart.cap=0"]),
        ({"rewards": {"heart": float("nan")}}, ["rewards.heart.weight=nan"]),
        ({"group_reward_pct": 1.5}, ["group_reward_pct=1.5", "0 to 1"]),
        ({"actions": ["jump"]}, ["jump", "noop"]),
        ({"actions": "move"}, ["actions='move'", "list"]),
        ({"freeze_duration": 256}, ["freeze_duration=256"]),
        ({"limit_is_terminal": 1}, ["limit_is_terminal=1"]),
        ({"recipes": {"wall": {}}}, ["wall", "altar"]),
        ({"recipes": {"altar": {"speed": 1}}}, ["speed", "cooldown"]),
        ({"recipes": {"altar": {"outputs": {}}}}, ["recipes.altar.outputs", "at least one"]),
        ({"recipes": {"altar": {"conversion_ticks": 0}}}, ["recipes.altar.conversion_ticks=0"]),
    ],
)
def test_mistakes_are_named_with_their_cure(keys: dict, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        grid_config(**keys)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("text", "keys", "word"),
    [
        ("#@x#\n", {}, "unknown character 'x' in map 1, line 1"),
        ("\n\n", {}, "holds no map"),
        ("#@#\n", {"num_agents": 2}, "1 agents (@), but num_agents=2"),
        ("#@#\n", {"objects": {"wall": 1}}, "objects: no effect"),
    ],
)
def test_mistakes_in_ascii_maps(tmp_path: Path, text: str, keys: dict, word: str) -> None:
    path = tmp_path / "map.txt"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        grid_config(map=str(path), **{"num_agents": 1, **keys})
    assert word in str(error.value)


def test_factory_names_an_unknown_key() -> None:
    with pytest.raises(UserError, match=r"unknown key 'room'.*room_size"):
        GridFactory(room=[3, 3])


def test_a_table_of_another_shape_is_refused() -> None:
    record, _ = grid_config()
    record["map_kind"], record["num_maps"] = 0, 1
    with pytest.raises(ValueError, match="needs its table"):
        GridParams(record)
    with pytest.raises(ValueError, match="shape"):
        GridParams(record, np.zeros((1, 2, 2), np.uint8))
