"""Checks whether a checkpoint's states of environments fit the environments that go on.

check_rules(start, factory)               refuses rules that have changed
unfit_states(start, factory, env)         "": they fit; else why the environments start new episodes
"""

from __future__ import annotations

from typing import Any

from metta_fast.config.keys import EnvConfig
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


def unfit_states(start: Checkpoint, factory: EnvFactory, env: EnvConfig) -> str:
    """Returns why states saved with another env.device or env.num_envs do not fit, or ""."""
    if not same_number(start, env):
        return f"their state in the checkpoint is that of env.num_envs={_saved(start, 'num_envs')}"
    then = _saved(start, "device")
    if then in (None, env.device) or not has_gpu_states(factory):
        return ""
    return f"their state in the checkpoint is that of env.device={then}"


def same_number(start: Checkpoint, env: EnvConfig) -> bool:
    """Whether a checkpoint is of as many environments."""
    return _saved(start, "num_envs") in (None, env.num_envs)


def _saved(start: Checkpoint, key: str) -> Any:
    return start.meta.get("config", {}).get("env", {}).get(key)
