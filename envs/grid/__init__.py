"""Implements the grid world: rules in grid_rules.h, configuration in config.py, the batch class in env.py."""
