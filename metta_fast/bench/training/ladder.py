"""Lists the changes from one configuration to another, and makes the configurations in between.

    steps = ladder(compose(a), compose(b))
    mixed(a, b, steps[0].paths + steps[1].paths)           # a with the first two changes of b

Values keep their origin: a profile's size is a ceiling that adapts to the step's other sizes, also here, so that the
last step is b itself. torch is not imported.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

from metta_fast.config.keys import get, keys, put
from metta_fast.resolve.compose import Composed

CHANGES: dict[str, tuple[str, ...]] = {
    "batch": ("trainer.batch_size",),
    "minibatch": ("trainer.minibatch_size",),
    "workers": ("vector.backend", "vector.num_workers", "vector.num_threads"),
    "envs": ("env.num_envs",),
    "async factor": ("vector.async_factor",),
    "zero copy": ("vector.zero_copy",),
    "BPTT": ("trainer.bptt_horizon",),
    "cpu offload": ("trainer.cpu_offload",),
    "precision": ("trainer.precision", "trainer.tf32"),
    "features": ("features",),
    "compile": ("trainer.compile", "trainer.compile_mode", "trainer.cuda_graphs"),
}
"""Name → keys that change together, in the performance guide's order. Any other key is a change of its own."""
INTERVALS = "intervals"
"""The last change: run.*_interval. Its cost is estimated (sizing/interval_cost.py), since a round is too short."""


@dataclass(frozen=True)
class Change:
    """Keys that change from a's to b's values in one step."""

    name: str
    paths: tuple[str, ...]


def ladder(a: Composed, b: Composed) -> list[Change]:
    """Returns the changes that lead from a to b."""
    different = [path for path in keys() if get(a.config, path) != get(b.config, path)]
    intervals = tuple(path for path in different if path.startswith("run.") and path.endswith("_interval"))
    named = {path for paths in CHANGES.values() for path in paths} | {*intervals}
    found = [
        Change(name, tuple(path for path in paths if path in different)) for name, paths in CHANGES.items()
    ]
    found += [Change(path, (path,)) for path in different if path not in named]
    return [change for change in (*found, Change(INTERVALS, intervals)) if change.paths]


def mixed(a: Composed, b: Composed, paths: Iterable[str]) -> Composed:
    """Returns a with b's values and their origins at `paths`; if these are all differences, returns b itself."""
    found = replace(a, config=copy.deepcopy(a.config), origins=dict(a.origins))
    for path in paths:
        put(found.config, path, copy.deepcopy(get(b.config, path)))
        for origin in [key for key in found.origins if _within(key, path)]:
            del found.origins[origin]
        found.origins |= {key: origin for key, origin in b.origins.items() if _within(key, path)}
    if found.config == b.config:
        found.origins, found.groups, found.notes = dict(b.origins), dict(b.groups), list(b.notes)
    found.machine = a.machine or b.machine
    return found


def _within(key: str, path: str) -> bool:
    """Whether `key` is `path` or is inside the dict at `path`."""
    return key == path or key.startswith(path + ".")
