"""Holds the grid world: all rules in grid_rules.h, recipes and maps in config.py, the batch class in env.py."""
