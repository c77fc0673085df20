"""metta_fast: very fast reinforcement learning for grid and robot environments.

Data flows one way:  envs → vector → rollout → advantage → learner.

Importing this package imports nothing heavy: worker processes rely on it never pulling in torch.
"""

__version__ = "0.1.0"
