"""Adds optional features to the learner. A feature is absent until the configuration names it.

    python run_optimized.py 'features={prioritized_replay: {prio_alpha: 0.6}}'
    python run_optimized.py features=my_module:add features.my_module:add.coef=0.1

    config.features ─► make_features ─► Hooks ─► the algorithm (kind.build)

A feature is a function (Hooks, **its own keys) that adds hooks (metta_fast/algorithms/hooks.py). Your own comes by
module:name or by an entry point of the group "metta_fast.features" (metta_fast/config/extension.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metta_fast.config.extension import (
    FEATURES,
    described,
    entry_point,
    entry_point_names,
    keywords,
    load_named,
)
from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt

if TYPE_CHECKING:
    from metta_fast.algorithms.hooks import Hooks

__all__ = ["known_features", "make_features"]

OURS = {
    name: f"metta_fast.features.{name}:add"
    for name in (
        "contrastive",
        "kickstart",
        "prioritized_replay",
        "profiler",
        "reward_centering",
        "weight_analysis",
    )
}
"""Features that come with metta_fast."""


def known_features() -> list[str]:
    """Returns the names of all features: ours, and those of installed packages."""
    return sorted({*OURS, *entry_point_names(FEATURES)})


def make_features(features: Mapping[str, Any], *, folder: Path | None = None) -> Hooks:
    """Returns the hooks of every enabled feature; imports no other.

    Args:
        features: `config.features`: {name: {key: value}}. A value of null or false leaves the feature off,
            true takes its defaults.
        folder: the run's; None: only the keys are checked.

    Raises:
        UserError: an unknown feature or key, a module that cannot be imported, or values that the feature refuses.
    """
    from metta_fast.algorithms.hooks import Hooks

    hooks = Hooks(folder=folder)
    for name, given in features.items():
        _check_known(name)
        if given is not None and given is not False:
            _add(hooks, name, given)
    return hooks


def _check_known(name: str) -> None:
    if name in OURS or ":" in name:
        return
    known = known_features()
    if name not in known:
        guess = did_you_mean(name, known)
        raise UserError(
            f"features.{name}: unknown feature; {guess}known: {', '.join(known)}, or your own as "
            "package.module:function"
        )


def _add(hooks: Hooks, name: str, given: Any) -> None:
    """Calls the function of a feature: ours, a user's by module:name, or an installed package's."""
    path = OURS.get(name, name)
    add = load_named(path, "features") if ":" in path else entry_point(FEATURES, name)
    keys = _keys(name, given, add)
    try:
        add(hooks, **keys)
    except UserError:
        raise
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(
            f"features.{name} failed: {described(error)}; it is called as add(hooks, **keys)"
        ) from error


def _keys(name: str, given: Any, add: Callable[..., None]) -> dict[str, Any]:
    """Returns the feature's own keys, checked against the parameters of its function."""
    if given is not True and not isinstance(given, Mapping):
        takes = ", ".join(list(inspect.signature(add).parameters)[1:])
        raise UserError(f"features.{name}={given!r}: expected its keys ({takes}), true or false")
    return keywords(add, {} if given is True else given, f"features.{name}", positional=1)
