"""Benchmarks that train: two settings, other libraries, ablations; imported by bench/main.py."""
