"""Keeps a run's states and files in a bucket or another folder, and continues runs from there."""
