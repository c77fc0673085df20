"""Tests action masks of environments on the CPU, from the environment to the exported file."""
