"""Holds the environment breakout: rules (breakout.h) and their description (breakout.py)."""
