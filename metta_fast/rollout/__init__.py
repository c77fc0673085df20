"""Collects experience: steps environments with the policy and fills the buffers; imported by algorithms/."""
