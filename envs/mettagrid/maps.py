"""Gives the builders of MettaGrid's maps seeds, so that a map depends on the environment's seed alone.

    game = with_map_seed(config.game, 7, episode=2)     # a copy; config is left as it is
    with fixed_globals(7):
        simulation = Simulation(…)                      # which builds the map

A builder without a seed draws one from the operating system, so the same seed of an environment gives different maps.
A builder with a seed k gets k + episode, as the package's own Simulator gives it. Builders within a builder draw anew
for each instance that is built. Some of the package's builders also use the module `random`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_GLOBALS = threading.Lock()


def with_map_seed(game: Any, seed: int, episode: int) -> Any:
    """Returns a copy of a GameConfig whose map builder, and all builders in it, have seeds.

    Args:
        seed: for builders without one.
        episode: number of the environment's episode, from 0.
    """
    builder = game.map_builder
    given = getattr(builder, "seed", None)
    update: dict[str, Any] = {}
    if "seed" in type(builder).model_fields:
        update["seed"] = seed if given is None else given + episode
    inner = _with_seeded_fields(builder, np.random.SeedSequence(seed if given is None else given + episode))
    return game.model_copy(update={"map_builder": builder.model_copy(update={**inner, **update})})


def _with_seeded_fields(builder: Any, entropy: np.random.SeedSequence) -> dict[str, Any]:
    """Returns {field: copy} of a builder's fields that are builders without a seed."""
    from mettagrid.map_builder.map_builder import MapBuilderConfig

    found: dict[str, Any] = {}
    for name in type(builder).model_fields:
        inner = getattr(builder, name)
        if not isinstance(inner, MapBuilderConfig):
            continue
        fields = _with_seeded_fields(inner, entropy.spawn(1)[0])
        if fields:
            inner = inner.model_copy(update=fields)
        if getattr(inner, "seed", 0) is None:
            inner = _drawing(inner, np.random.default_rng(entropy.spawn(1)[0]))
        if inner is not getattr(builder, name):
            found[name] = inner
    return found


def _drawing(builder: Any, rng: np.random.Generator) -> Any:
    """Returns a copy of a builder's configuration that gives each builder that it makes another seed."""
    kind = type(builder)

    class Drawing(kind):  # type: ignore[misc, valid-type]
        def create(self) -> Any:
            return kind.create(self.model_copy(update={"seed": int(rng.integers(1 << 31))}))

    return Drawing.model_construct(**{name: getattr(builder, name) for name in kind.model_fields})


@contextmanager
def fixed_globals(seed: int) -> Iterator[None]:
    """Seeds the global generators of `random` and NumPy, and restores them at the end. One thread at a time."""
    with _GLOBALS:
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
