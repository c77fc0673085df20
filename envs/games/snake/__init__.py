"""Holds the environment snake: rules (snake.h) and their description (snake.py)."""
