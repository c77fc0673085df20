"""Reads the recipe chain mine → generator → altar, which the scripted agent works, from a configuration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.names import ITEMS, TYPES

HEART = ITEMS.index("heart")
MINE, GENERATOR, ALTAR = range(3)


@dataclass(frozen=True)
class Chain:
    """Holds the recipes that lead to a heart: ore → battery → heart, with the amounts that each step takes."""

    items: tuple[int, int, int]
    """What a MINE, a GENERATOR, an ALTAR gives."""
    takes: tuple[int, int, int]
    """How many of the item before."""
    stage_of_type: tuple[int, ...]
    """For each type MINE, GENERATOR or ALTAR; -1 for what has no part in it."""

    @staticmethod
    def of(record: Array) -> Chain:
        """Raises UserError unless hearts come of one kind of battery, and that of one kind of ore, mined."""
        takes, gives = record["recipe_in"], record["recipe_out"]

        def makers(item: int, inputs: int) -> list[tuple[int, list[int]]]:
            """Returns (type, what it takes) of the types that give the item and take this many kinds of items."""
            kinds = np.flatnonzero((gives[:, item] > 0) & ((takes > 0).sum(axis=1) == inputs)).tolist()
            return [(kind, np.flatnonzero(takes[kind]).tolist()) for kind in kinds]

        for altar, (battery,) in makers(HEART, 1):
            for generator, (ore,) in makers(battery, 1):
                mines = [mine for mine, _ in makers(ore, 0)]
                if mines:
                    stages = [-1] * len(TYPES)
                    stages[generator], stages[altar] = GENERATOR, ALTAR
                    for mine in mines:
                        stages[mine] = MINE
                    amounts = 0, int(takes[generator, ore]), int(takes[altar, battery])
                    return Chain((ore, battery, HEART), amounts, tuple(stages))
        raise UserError(
            "the scripted agent needs recipes that lead mine → generator → altar, each taking one kind of "
            "item; these do not: compare with the random agent alone, or change `recipes`"
        )
