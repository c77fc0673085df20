"""Measures what decides sizes: the largest batch, the cost of intervals, advantage kernels; for bench/main.py."""
