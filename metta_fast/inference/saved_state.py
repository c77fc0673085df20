"""Returns what a checkpoint says about its run: the configuration, and the policy's weights.

A checkpoint that was altered together with its checksums gives one line that names file and key.

Place in the flow: evaluate.py, run/resume.py and run/fine_tune.py read checkpoints by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metta_fast.config.keys import Config, config_from_dict, keys
from metta_fast.contracts.algorithm import POLICY_STATE
from metta_fast.contracts.errors import UserError
from metta_fast.storage.altered import altered, entry, reading
from metta_fast.storage.checkpoint import Checkpoint


def saved_config(found: Checkpoint) -> Config:
    """Returns the configuration that the checkpoint was saved with; keys that its version did not have are defaults.

    Raises:
        AlteredCheckpoint: a key is missing or unknown, or a value is of the wrong type or out of range.
    """
    given = found.value("config")
    known = keys()
    dicts = [
        f"{path}." for path, key in known.items() if key.kind in ("dict", "named") and path != "features"
    ]
    with reading(found.path, "meta.json"):
        for origin in found.meta.get("origins", {}):
            path = (
                origin if origin in known else next((key for key in dicts if origin.startswith(key)), "")[:-1]
            )
            if path:  # it was saved with this key
                node, where = given, "config."
                for name in path.split("."):
                    node, where = entry(node, name, where), f"{where}{name}."
        try:
            return config_from_dict(given)
        except UserError as error:
            raise altered(found.path, "meta.json", f"config.{error}") from error


def policy_state(found: Checkpoint) -> Mapping[str, Any]:
    """Returns the weights and normalisers of the policy by their names.

    Raises:
        UserError: there are none, or algorithm.pt cannot be loaded.
    """
    with reading(found.path, "algorithm.pt"):
        state = entry(found.load("algorithm"), POLICY_STATE)
        for _ in state if isinstance(state, Mapping) else ():
            return dict(state)
        raise ValueError(f"{POLICY_STATE} holds no weights")
