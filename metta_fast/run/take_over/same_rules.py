"""Checks whether a checkpoint's states of environments fit the environments that go on.

check_rules(start, factory)               refuses rules that have changed
other_device(start, factory, device)      "": they fit; else why the environments start new episodes
"""

from __future__ import annotations

from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.env_answers import has_gpu_states, rules_digest
from metta_fast.contracts.errors import UserError
from metta_fast.storage.checkpoint import Checkpoint


def check_rules(start: Checkpoint, factory: EnvFactory) -> None:
    """Raises UserError if the rules, other than their comments, are not those of the checkpoint."""
    then, now = start.meta.get("rules"), rules_digest(factory)
    if then not in (None, now):
        raise UserError(
            f"{start.path}: the rules of {factory.spec.name} have changed since this checkpoint ({then}, now {now}), "
            f"and the environments' states in it fit only the old ones; restore the rules, or begin a new run with its "
            f"policy: init_from={start.path}"
        )


def other_device(start: Checkpoint, factory: EnvFactory, device: str) -> str:
    """Returns why states saved with another env.device do not fit, or ""."""
    then = start.meta.get("config", {}).get("env", {}).get("device")
    if then in (None, device) or not has_gpu_states(factory):
        return ""
    return f"their state in the checkpoint is that of env.device={then}"
