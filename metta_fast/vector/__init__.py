"""Vectorization: serial, threads, workers behind one contract (api.py)."""
