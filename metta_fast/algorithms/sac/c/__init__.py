"""Updates of SAC and TD3 in C."""
