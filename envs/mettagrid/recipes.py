"""Configurations of MettaGrid by name (env.recipe). Arguments are env.kwargs.

    arena    the package's arena with mines, generators and altars, as the classic one had them

The package's own are named by their module: env.recipe=mettagrid.builder.envs:make_navigation. Its make_arena of
version 0.26.22 has walls alone and gives no reward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mettagrid.config.mettagrid_config import MettaGridConfig

ORE, BATTERY, HEART = "ore_red", "battery_red", "heart"
BATTERIES = 3
"""What a heart takes."""
GLOBAL_TOKENS, AGENT_TOKENS = 8, 8
"""The most tokens of no place, and of an agent: its tag, group, number, vibe and what it holds of three items. Other
things have one, their tag."""


def arena(
    num_agents: int = 24,
    *,
    max_steps: int = 1000,
    width: int = 25,
    height: int = 25,
    mines: int = 10,
    generators: int = 5,
    altars: int = 5,
    walls: int = 10,
    window: int = 11,
    tokens: int | None = None,
) -> MettaGridConfig:
    """Returns the package's arena with the classic chain: a mine gives ore, a generator makes a battery of one, an
    altar a heart of three batteries. An agent uses a thing by moving against it.

    Rewards: 1 for a heart, and for what leads to it 0.02 (ore) and 0.05 (battery), up to what one recipe takes.

    Args:
        window: side of the square that an agent sees, in cells.
        tokens: length of an observation; by default as many as there can ever be, for the simulator ends the run where
            they do not suffice.
    """
    from mettagrid.builder.envs import make_arena
    from mettagrid.config.filter import actorHas
    from mettagrid.config.game_value import InventoryValue
    from mettagrid.config.handler_config import Handler
    from mettagrid.config.mettagrid_config import GridObjectConfig
    from mettagrid.config.mutation import updateActor
    from mettagrid.config.reward_config import reward

    config = make_arena(num_agents=num_agents)
    game = config.game
    game.max_steps = max_steps
    game.obs.width = game.obs.height = window
    cells = window * window
    most = GLOBAL_TOKENS + cells + AGENT_TOKENS * min(num_agents, cells)
    game.obs.num_tokens = most if tokens is None else tokens
    uses = {
        "mine": Handler(mutations=[updateActor({ORE: 1})]),
        "generator": Handler(filters=[actorHas({ORE: 1})], mutations=[updateActor({ORE: -1, BATTERY: 1})]),
        "altar": Handler(
            filters=[actorHas({BATTERY: BATTERIES})], mutations=[updateActor({BATTERY: -BATTERIES, HEART: 1})]
        ),
    }
    for name, use in uses.items():
        game.objects[name] = GridObjectConfig(name=name, on_use_handler=use)
    game.agent.rewards = {
        HEART: reward(InventoryValue(item=HEART)),
        BATTERY: reward(InventoryValue(item=BATTERY), weight=0.05, max=0.05 * BATTERIES),
        ORE: reward(InventoryValue(item=ORE), weight=0.02, max=0.02),
    }
    room = game.map_builder
    room.width, room.height = width, height  # type: ignore[attr-defined]
    room.instance.objects = {"wall": walls, "mine": mines, "generator": generators, "altar": altars}  # type: ignore[attr-defined]
    return config


RECIPES: dict[str, Callable[..., MettaGridConfig]] = {"arena": arena}
