"""Compiles C++ kernels to machine code (compile.py) and launches them on torch's stream (launch.py); for vector/gpu*.

Importing this package imports neither torch nor CUDA.
"""
