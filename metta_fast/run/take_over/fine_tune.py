"""Starts a new run with the policy of another: fine-tuning.

    init_from=runs/x        the policy of that run's newest whole checkpoint, or of one checkpoint

The new run takes the policy's weights and the normalizers (of observations and of rewards). Optimizer, schedule and
counters start fresh; `resume=` continues a run instead. The policy's keys are those of the other run unless the user
types them, because its weights fit no other network. The environment is the user's choice.

Place in the flow: resume.py's `prepare` asks `adopt`; trainer.py hands the state to the algorithm's `start_from`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from metta_fast.config.keys import Config, config_from_dict, config_to_dict, get, keys, put
from metta_fast.inference.saved_state import saved_config
from metta_fast.resolve.compose import Composed
from metta_fast.storage.checkpoint import Checkpoint


def adopt(composed: Composed, found: Checkpoint, words: Sequence[str]) -> Composed:
    """Returns the configuration with the policy's keys of `found`, except those that the user typed.

    Args:
        words: the arguments as typed: keys of a typed `policy=…` are the user's.

    Raises:
        UserError: the policy's keys of `found` name code that may not be imported.
    """
    other = saved_config(found)
    config = config_from_dict(config_to_dict(composed.config))
    origins, name = dict(composed.origins), found.path.parent.parent.name
    policy_typed = any(word.startswith("policy=") for word in words)
    for path in _paths(other, config):
        origin = origins.get(path, "")
        if composed.typed(path) or (policy_typed and origin.startswith("policy/")):
            continue
        value = get(other, path)
        if isinstance(value, dict):  # policy.params: the typed ones win, one by one
            typed = [key for key in get(config, path) if _typed_inside(composed, f"{path}.{key}")]
            value = value | {key: get(config, path)[key] for key in typed}
        put(config, path, value)
        origins[path] = f"init_from {name}"
    composed.check_code(config, found.meta, found.run)
    config.init_from = str(found.path)
    note = f"starts with the policy of {found.path}; optimizer, schedule and counters are new"
    return dataclasses.replace(composed, config=config, origins=origins, notes=[*composed.notes, note])


def _typed_inside(composed: Composed, path: str) -> bool:
    """Whether the user typed this entry of a dict, or a value inside it."""
    return any(composed.typed(key) for key in composed.origins if key == path or key.startswith(path + "."))


def _paths(other: Config, config: Config) -> list[str]:
    """Returns the keys that decide which weights a policy has."""
    found = [path for path in keys() if path.startswith("policy.")]
    same = other.env.factory == config.env.factory
    return [*found, "env.observation"] if same else found
