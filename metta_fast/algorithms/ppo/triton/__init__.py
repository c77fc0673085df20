"""PPO's update as Triton kernels for the GPU; imported by the learner in algorithms/ppo/."""
