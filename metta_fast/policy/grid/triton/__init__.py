"""Triton kernels of the grid's sparse first layer; imported by policy/grid/ and policy/fused_act/."""
