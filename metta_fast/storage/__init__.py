"""Stores a run on disk: folder, lock, checkpoints; imported by metrics/, watch/, inference/ and run/."""
