"""Refuses to continue a run whose environment's rules have changed: its saved states fit the old rules only."""

from __future__ import annotations

from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.env_answers import rules_digest
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
