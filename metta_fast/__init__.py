"""metta_fast: very fast reinforcement learning for grid and robot environments.

Data flows one way:  envs → vector → rollout → advantage → learner.

Importing this package imports nothing heavy: worker processes rely on it never pulling in torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metta_fast.load import load_policy as load_policy

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "load_policy":
        from metta_fast.load import load_policy

        return load_policy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
