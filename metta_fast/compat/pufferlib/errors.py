"""Defines PufferLib's exceptions."""

from __future__ import annotations

from typing import Any

from metta_fast.contracts.errors import UserError


class EnvironmentSetupError(RuntimeError):
    """Reports that an environment cannot be set up."""


class APIUsageError(UserError, RuntimeError):
    """Reports a call that PufferLib's interface does not allow; the message has the cure."""


class InvalidAgentError(ValueError):
    """Reports an agent that the environment does not have."""

    def __init__(self, agent_id: Any, agents: Any) -> None:
        super().__init__(f"there is no agent {agent_id!r}; the environment has {list(agents)}")
