"""PPO's update written in C for the CPU; imported by the learner in algorithms/ppo/."""
