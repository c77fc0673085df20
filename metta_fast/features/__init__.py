"""Gated plug-ins of the learner. A feature is absent until the configuration names it.

    python run_optimized.py 'features={prioritized_replay: {prio_alpha: 0.6}}'

    config.features ─► make_features ─► Hooks ─► PPO(…, hooks=…)

A feature is a function (Hooks, **its own keys) that adds hooks (metta_fast/algorithms/hooks.py). One of your own
comes by an entry point of the group "metta_fast.features", in its package's pyproject.toml:

    [project.entry-points."metta_fast.features"]
    my_feature = "my_package.my_module:add"
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    from metta_fast.algorithms.hooks import Hooks

__all__ = ["GROUP", "known_features", "make_features"]

GROUP = "metta_fast.features"
"""The entry points' group."""

OURS = {
    name: f"metta_fast.features.{name}:add" for name in ("prioritized_replay", "profiler", "weight_analysis")
}
"""Features that come with metta_fast."""


def known_features() -> dict[str, Callable[[], Callable[..., None]]]:
    """Every feature's name and what loads its function: ours, and those of installed packages."""
    known = {point.name: point.load for point in entry_points(group=GROUP)}
    return known | {name: lambda path=path: _load(path) for name, path in OURS.items()}  # type: ignore[misc]


def make_features(features: Mapping[str, Any], *, folder: Path | None = None) -> Hooks:
    """The hooks of every enabled feature; none is imported that is not named.

    Args:
        features: `config.features`: {name: {key: value}}. A value of null or false leaves the feature off,
            true takes its defaults.
        folder: the run's; None: only the keys are checked.

    Raises:
        UserError: an unknown feature or key, or values that the feature refuses.
    """
    from metta_fast.algorithms.hooks import Hooks

    hooks = Hooks(folder=folder)
    for name, given in features.items():
        known = known_features()
        if name not in known:
            guess = did_you_mean(name, known)
            raise UserError(f"features.{name}: unknown feature; {guess}known: {', '.join(sorted(known))}")
        if given is None or given is False:
            continue
        add = known[name]()
        add(hooks, **_keys(name, given, add))
    return hooks


def _keys(name: str, given: Any, add: Callable[..., None]) -> dict[str, Any]:
    """The feature's own keys, by the parameters of its function."""
    if given is True:
        return {}
    takes = list(inspect.signature(add).parameters)[1:]
    if not isinstance(given, Mapping):
        raise UserError(f"features.{name}={given!r}: expected its keys ({', '.join(takes)}), true or false")
    for key in given:
        if key not in takes:
            guess = did_you_mean(key, takes)
            raise UserError(f"features.{name}.{key}: unknown key; {guess}it has {', '.join(takes) or 'none'}")
    return dict(given)


def _load(path: str) -> Callable[..., None]:
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)
