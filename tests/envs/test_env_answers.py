"""What general code asks of a factory; it compares no environment's name itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import metta_fast
from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env_answers import (
    as_gymnasium,
    gymnasium_id,
    observations,
    scripted_player,
    viewer,
)
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.repeat import repeated

ROOT = Path(metta_fast.__file__).parent
NAMES = {"grid", "robot", "counter"}


def test_an_environment_without_answers_has_the_defaults() -> None:
    factory = CounterFactory()
    for made in (factory, repeated(factory, 2)):
        assert scripted_player(made) is None
        assert viewer(made) is None
        assert observations(made) == ()
        assert gymnasium_id(made) == ""
    assert as_gymnasium(factory) is factory


def test_the_grid_has_a_scripted_player_and_observations() -> None:
    factory = GridFactory(num_agents=2)
    assert scripted_player(factory) is not None
    assert observations(factory) == observations(repeated(factory, 2)) == ("tokens", "dense", "compact")
    with pytest.raises(UserError, match=r"no scripted player with env\.action_repeat"):
        scripted_player(repeated(factory, 2))


def test_a_robot_has_a_viewer_and_a_name_in_gymnasium() -> None:
    pytest.importorskip("mujoco")
    params = {"task": "ant", "healthy_reward": 0.5}
    factory = make_factory(EnvConfig(factory="robot", agents_per_env=1, max_steps=50, params=params))
    for made in (factory, repeated(factory, 2)):
        assert viewer(made) is not None
        assert gymnasium_id(made) == "Ant-v5"
        assert scripted_player(made) is None
    plain = as_gymnasium(factory)
    assert (plain.spec.name, plain.spec.max_steps) == ("ant", 50)
    assert plain.options == {}  # type: ignore[attr-defined]


def compared(tree: ast.AST) -> list[str]:
    """Environments' names that are compared with == != in, or matched; but for `.kind == …` (of leaves, of worlds)."""
    found = []
    for node in ast.walk(tree):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += [node.pattern] if isinstance(node, ast.match_case) else []
        if any(isinstance(part, ast.Attribute) and part.attr == "kind" for part in parts):
            continue
        for part in parts:
            found += [
                leaf.value
                for leaf in ast.walk(part)
                if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and leaf.value in NAMES
            ]
    return found


def test_general_code_compares_no_environments_name() -> None:
    files = [path for path in ROOT.rglob("*.py") if ROOT / "envs" not in path.parents]
    assert len(files) > 150
    found = {str(path.relative_to(ROOT)): compared(ast.parse(path.read_text())) for path in files}
    assert {name: names for name, names in found.items() if names} == {}


class Two(CounterFactory):
    """Counts, and knows two observations."""

    def observations(self) -> tuple[str, ...]:
        return ("near", "far")


def two(config: EnvConfig) -> Two:
    return Two(max_steps=config.max_steps)


@pytest.mark.parametrize(
    ("factory", "observation", "message"),
    [
        (
            "grid",
            "compakt",
            "grid has no such observation; did you mean 'compact'.* known: tokens, dense, compact",
        ),
        (f"{__name__}:two", "fat", "has no such observation; did you mean 'far'.* known: near, far"),
        (f"{__name__}:two", "tokens", "has no such observation; known: near, far"),
    ],
)
def test_a_factory_says_which_observations_it_has(factory: str, observation: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_factory(EnvConfig(factory=factory, observation=observation))


def test_a_factorys_own_observation_can_be_asked_for() -> None:
    for observation in ("near", "far", "default"):
        made = make_factory(EnvConfig(factory=f"{__name__}:two", observation=observation))
        assert observations(made) == ("near", "far")
