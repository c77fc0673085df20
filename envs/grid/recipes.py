"""Fills the record's rewards and converters' recipes; MettaGrid's classic recipes are the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.checks import index_of, integer, mapping, thousandths
from metta_fast.envs.grid.names import ITEMS, NO_CAP, TYPES

COLORS = ("red", "blue", "green")
CLASSIC: dict[str, dict[str, Any]] = {
    **{f"mine_{c}": {"inputs": {}, "outputs": {f"ore_{c}": 1}, "cooldown": 50} for c in COLORS},
    **{
        f"generator_{c}": {"inputs": {f"ore_{c}": 1}, "outputs": {f"battery_{c}": 1}, "cooldown": 25}
        for c in COLORS
    },
    "altar": {"inputs": {"battery_red": 3}, "outputs": {"heart": 1}, "cooldown": 10},
    "armory": {"inputs": {"ore_red": 3}, "outputs": {"armor": 1}, "cooldown": 10},
    "lasery": {"inputs": {"ore_red": 1, "battery_red": 2}, "outputs": {"laser": 1}, "cooldown": 10},
    "lab": {"inputs": {"ore_red": 3, "battery_red": 3}, "outputs": {"blueprint": 1}, "cooldown": 5},
    "factory": {
        "inputs": {"blueprint": 1, "ore_red": 5, "battery_red": 5},
        "outputs": {"armor": 5, "laser": 5},
        "cooldown": 5,
    },
    "temple": {"inputs": {"heart": 1, "blueprint": 1}, "outputs": {"heart": 5}, "cooldown": 5},
}
"""MettaGrid's classic converters; each also has conversion_ticks 1, max_output 5, initial 0."""


def set_rewards(record: Array, rewards: Mapping[str, Any]) -> None:
    record["reward_cap"][:] = NO_CAP
    for name, given in mapping("rewards", rewards).items():
        item = index_of("rewards", name, ITEMS)
        reward = given if isinstance(given, Mapping) else {"weight": given}
        for part in reward:
            index_of(f"rewards.{name}", part, ("weight", "cap"))
        if "weight" not in reward:
            raise UserError(f"rewards.{name}={given!r}: expected a number, or {{weight: …, cap: …}}")
        record["reward_weight"][item] = thousandths(f"rewards.{name}.weight", reward["weight"])
        if reward.get("cap") is not None:
            cap = thousandths(f"rewards.{name}.cap", reward["cap"])
            if cap <= 0:
                raise UserError(f"rewards.{name}.cap={reward['cap']!r}: expected a number above 0")
            record["reward_cap"][item] = cap


def set_recipes(record: Array, recipes: Mapping[str, Any]) -> None:
    changes = mapping("recipes", recipes)
    for name in changes:
        index_of("recipes", name, tuple(CLASSIC))
    record["conversion_ticks"][:] = 1
    for name, classic in CLASSIC.items():
        kind = TYPES.index(name)
        recipe = {"conversion_ticks": 1, "max_output": 5, "initial": 0, **classic}
        for part, value in mapping(f"recipes.{name}", changes.get(name, {})).items():
            index_of(f"recipes.{name}", part, tuple(recipe))
            recipe[part] = value
        for part, field in (("inputs", "recipe_in"), ("outputs", "recipe_out")):
            for item, count in mapping(f"recipes.{name}.{part}", recipe[part]).items():
                at = index_of(f"recipes.{name}.{part}", item, ITEMS)
                record[field][kind, at] = integer(f"recipes.{name}.{part}.{item}", count, 0, 255)
        if not record["recipe_out"][kind].any():
            raise UserError(f"recipes.{name}.outputs={recipe['outputs']!r}: expected at least one item")
        for part, low, high in (
            ("cooldown", 0, 1_000_000),
            ("conversion_ticks", 1, 1_000_000),
            ("max_output", 1, 2550),
            ("initial", 0, 255),
        ):
            record[part][kind] = integer(f"recipes.{name}.{part}", recipe[part], low, high)
