"""Trains as one of several processes: start (ranks.py), and staying together at the boundaries (together.py)."""
