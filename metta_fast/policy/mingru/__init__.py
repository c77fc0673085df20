"""The minGRU core's scan over time in C and Triton; imported by policy/cores.py and bench/gpu/."""
