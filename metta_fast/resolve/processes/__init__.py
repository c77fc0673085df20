"""Fits a run to the processes that train it (fit.py)."""
