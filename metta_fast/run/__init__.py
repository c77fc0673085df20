"""Runs a training: build, loop, checkpoints, signals, resume; imported by cli.py and bench/."""
