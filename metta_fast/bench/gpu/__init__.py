"""Benchmarks of training and stepping with everything on the GPU; imported by bench/main.py."""
