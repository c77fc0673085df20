"""Holds the environment cartpole: rules (cartpole.h) and their description (cartpole.py)."""
