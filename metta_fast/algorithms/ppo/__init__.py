"""PPO: rollout, advantage, learner (see ppo.py for the flow).

from metta_fast.algorithms.ppo import PPO
"""

from metta_fast.algorithms.ppo.ppo import PPO

__all__ = ["PPO"]
