"""PPO: rollout, advantage, learner (see ppo.py for the flow). kind.py registers it.

from metta_fast.algorithms.ppo import PPO     # imports torch; the package alone does not
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metta_fast.algorithms.ppo.ppo import PPO

__all__ = ["PPO"]


def __getattr__(name: str) -> Any:
    if name != "PPO":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from metta_fast.algorithms.ppo.ppo import PPO

    return PPO
