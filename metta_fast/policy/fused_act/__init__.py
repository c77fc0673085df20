"""Runs a step's forward pass and sampling in a single kernel, in C or Triton. rollout/ imports it."""
