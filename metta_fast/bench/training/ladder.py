"""From one configuration to another, one change at a time: which keys go over together, and what stands in between.

    steps = ladder(compose(a), compose(b))
    mixed(a, b, steps[:3])           # a with the first three changes of b

Values keep where they come from: what a profile gave is a ceiling that fits itself to the step's other sizes, also
here, so that the last step is b itself. torch is not imported.
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
"""Name → keys that go over together, in the performance guide's order. Any other key is a change of its own."""
INTERVALS = "intervals"
"""The last change: run.*_interval, whose cost is reckoned (interval_cost.py), since a round is too short for it."""


@dataclass(frozen=True)
class Change:
    """Keys that go over from a to b in one step."""

    name: str
    paths: tuple[str, ...]


def ladder(a: Composed, b: Composed) -> list[Change]:
    """The changes that lead from a to b, without those in which they agree."""
    different = [path for path in keys() if get(a.config, path) != get(b.config, path)]
    intervals = tuple(path for path in different if path.startswith("run.") and path.endswith("_interval"))
    named = {path for paths in CHANGES.values() for path in paths} | {*intervals}
    found = [
        Change(name, tuple(path for path in paths if path in different)) for name, paths in CHANGES.items()
    ]
    found += [Change(path, (path,)) for path in different if path not in named]
    return [change for change in (*found, Change(INTERVALS, intervals)) if change.paths]


def mixed(a: Composed, b: Composed, paths: Iterable[str]) -> Composed:
    """a with b's values, and their origins, at `paths`; at all that differ: b."""
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
    """Whether `key` is `path` or lies in the dict there."""
    return key == path or key.startswith(path + ".")
