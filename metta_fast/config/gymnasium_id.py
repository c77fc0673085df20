"""Tells environment ids of Gymnasium and PettingZoo from the other words that `env=…` takes. Nothing is imported.

    is_gymnasium_id("CartPole-v1")          # True; also ALE/Breakout-v5 and my_package:MyEnv-v0
    is_gymnasium_id("my_module:make")       # False: after the colon is the name of a function or class
    recipe_of("butterfly/pistonball_v6")    # "pettingzoo"

Place in the flow: resolve/arguments.py decides with it what `env=…` means, trust.py which key such a word sets.
"""

from __future__ import annotations

import re

_PACKAGE = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_PLAIN = re.compile(r"(?:[\w-]+/[\w.-]+|[\w.-]+-v\d+)")
_ATARI = re.compile(r"\w+NoFrameskip-v\d+")
"""Names of Atari games that are made to be preprocessed."""
_OF_PACKAGE = re.compile(rf"{_PACKAGE}:(?:[\w-]+/)?[\w.-]+")
ZOO = re.compile(r"(?:\w+(?:\.\w+)*:)?(?:[a-z]\w*/\w+_v\d+|pettingzoo\.\w+\.\w+)")
"""Ids of PettingZoo: of its registry, whose versions follow an underscore, and the modules of its own environments."""
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


def is_gymnasium_id(text: str) -> bool:
    """Whether `env=text` names an environment of Gymnasium or PettingZoo, if no recipe has this name.

    An id without a package is known by its version or its namespace; one with a package by what is after the colon,
    which cannot be a function's name. Any other id is given as env=gymnasium env.id=….
    """
    if ZOO.fullmatch(text):
        return True
    if ":" in text:
        return bool(_OF_PACKAGE.fullmatch(text)) and not text.partition(":")[2].isidentifier()
    return bool(_PLAIN.fullmatch(text))


def recipe_of(text: str) -> str:
    """Returns the recipe (configs/env) that `env=text` means for an id."""
    if ZOO.fullmatch(text):
        return "pettingzoo"
    name = package_and_id(text)[1]
    if name.startswith(("MiniGrid-", "BabyAI-")):
        return "minigrid"
    return "atari" if _ATARI.fullmatch(name) else "gymnasium"


def package_and_id(text: str) -> tuple[str, str]:
    """Returns the package to import ("" for none) and the id that it registers."""
    package, _, name = text.rpartition(":")
    return package, name


def folder_name(text: str) -> str:
    """Returns an id as a name of a folder: ALE-Breakout-v5, butterfly-pistonball_v6."""
    name = re.sub(r"^pettingzoo\.(\w+)\.", r"\1-", package_and_id(text)[1])
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "gymnasium"


def names_module(text: str) -> bool:
    """Whether an id is the name of a module, which is imported: my_package.my_game_v0, but none of PettingZoo's own."""
    return bool(_MODULE.fullmatch(text)) and not ZOO.fullmatch(text)
