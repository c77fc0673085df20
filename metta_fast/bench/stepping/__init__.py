"""Benchmarks of environments and vector backends without training; imported by bench/main.py."""
