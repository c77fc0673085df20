"""What env.recipe, env.kwargs and env.params may say, and the messages for what they may not."""

from __future__ import annotations

import sys
import types

import pytest
from mettagrid.builder.envs import make_navigation

from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.mettagrid import package
from metta_fast.envs.mettagrid.recipes import arena
from metta_fast.resolve.compose import compose


def factory(*words):
    return make_factory(compose(["env=mettagrid", *words, "hardware=cpu"]).config.env)


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("my_worlds")
    monkeypatch.setitem(sys.modules, "my_worlds", made)
    return made


def test_a_recipe_by_name_with_arguments_and_fields():
    made = factory(
        "env.agents_per_env=3",
        "env.kwargs.mines=4",
        "env.params.game.max_steps=70",
        "env.params.game.obs={width:7,height:5}",
        "env.params.game.agent.rewards.heart.weight=2",
        "env.params.game.map_builder.seed=9",
    )
    game = made.config.game
    assert (made.spec.agents_per_env, made.spec.max_steps) == (3, 70)
    assert (game.obs.width, game.obs.height) == (7, 5)
    assert game.map_builder.instance.objects["mine"] == 4
    assert game.map_builder.seed == 9
    assert game.agent.rewards["heart"].weight == 2
    assert game.episode_truncates
    assert not factory("env.limit_is_terminal=true").config.game.episode_truncates


def test_a_function_of_ones_own(module):
    kept = arena(2)
    module.make = lambda: kept
    made = factory("env.recipe=my_worlds:make", "env.params.game.max_steps=5")
    assert made.spec.agents_per_env == 2
    assert kept.game.max_steps == 1000  # a copy is changed
    module.make = make_navigation
    assert factory("env.recipe=my_worlds:make", "env.agents_per_env=5").spec.agents_per_env == 5
    module.make = lambda num_agents=4: arena(num_agents)
    assert factory("env.recipe=my_worlds:make").spec.agents_per_env == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("env.recipe=arean", "did you mean 'arena'.*package.module:function"),
        ("env.recipe=null", "needs a recipe, for example env.recipe=arena"),
        ("env.recipe=os:getcwd", "gave str, expected a MettaGridConfig"),
        ("env.recipe=nonesuch:make", "no module 'nonesuch'"),
        ("env.recipe=my_worlds:fails", "env.recipe=my_worlds:fails failed: .*no luck"),
        ("env.recipe=my_worlds:leaves", "env.recipe=my_worlds:leaves failed: SystemExit"),
        ("env.recipe=my_worlds:speaks", "enables no action but vibes|noop or game.actions.move"),
        ("env.kwargs.minse=3", "env.kwargs.minse: unknown key; did you mean 'mines'"),
        ("env.kwargs.mines=many", "env.recipe=arena: "),
        ("env.params.game.max_stesp=3", "GameConfig has no such field; did you mean 'max_steps'"),
        ("env.params.game.max_steps=long", "env.params.game.max_steps=long: Input should be a valid integer"),
        ("env.params.game.obs.width=40", "env.recipe=arena: .*exceeds maximum"),
        ("env.params.game=3", "env.params.game=3: Input should be"),
        ("env.params.game.objects.wall=3", "env.params.game.objects.wall=3: Input should be"),
        ("env.kwargs.tokens=1", "env.recipe=arena: .*token budget"),
        ("env.id=CartPole-v1", "env.id=CartPole-v1 has no effect with env=mettagrid"),
        ("env.observation=dense", "no such observation.*tokens"),
    ],
)
def test_mistakes(words, message, module):
    def fails():
        raise RuntimeError("no luck")

    def speaks():
        config = arena(2)
        config.game.actions.noop.enabled = config.game.actions.move.enabled = False
        return config

    module.fails, module.leaves, module.speaks = fails, sys.exit, speaks
    with pytest.raises(UserError, match=message) as found:
        factory(words)
    assert "\n" not in str(found.value)


def test_another_version_or_none(monkeypatch):
    monkeypatch.setattr(package, "VERSION", "0.1.0")
    with pytest.raises(UserError, match=r"mettagrid 0\.1\.0, but 0\.26\.22 is installed: type .*pip install"):
        factory()

    def gone(name):
        raise package.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(package.metadata, "version", gone)
    with pytest.raises(UserError, match=r"not installed: type .*pip install .*mettagrid"):
        factory()
