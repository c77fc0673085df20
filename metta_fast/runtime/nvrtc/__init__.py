"""Our kernels on an NVIDIA GPU: C++ source → machine code (compile.py) → launches on torch's stream (launch.py).

Importing this imports neither torch nor CUDA.
"""
