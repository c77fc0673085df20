"""Runs what docs/pettingzoo.md shows: a module whose make(config) returns the environment itself."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metta_fast
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.resolve.compose import compose
from tests.agents.games import Game

PAGE = (Path(__file__).parents[2] / "docs" / "pettingzoo.md").read_text()


def factory_of(tmp_path: Path, monkeypatch: Any, text: str, *words: str) -> Any:
    (tmp_path / "zoo_page.py").write_text(text)
    (tmp_path / "my_game.py").write_text(
        "from tests.agents.games import Game as Base\n\n\n"
        "class Game(Base):\n    def __init__(self, size=9):\n        super().__init__([['L' * size, 'C' * size]])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("zoo_page", "my_game"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return make_factory(compose(["env=zoo_page:make", *words, "hardware=cpu"]).config.env)


def test_a_function_that_returns_the_environment(tmp_path, monkeypatch):
    found = re.search(r"\n    from my_game import Game.*?\n\n(?=In a program)", PAGE, re.DOTALL)
    assert found is not None
    text = textwrap.dedent(found.group())
    assert factory_of(tmp_path, monkeypatch, text, "env.params.size=3").spec.agents_per_env == 3
    with pytest.raises(UserError, match=r"env=grid|env\.pad=true has no effect"):
        make_factory(compose(["env=grid", "env.pad=true", "hardware=cpu"]).config.env)


def test_a_vector_without_a_trainer():
    def game(size):
        return Game([["L" * size, "C" * size]])

    with metta_fast.make_vec(game, 2, kwargs={"size": 2}, backend="serial") as vec:
        assert vec.num_agents == 4
        vec.async_reset(0)
        block = vec.recv()
        vec.send(block, np.zeros((4, 1), np.int32))
        assert vec.recv().rows.truncation.tolist() == [True] * 4
