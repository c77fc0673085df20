"""Forward pass and sampling of one step in a single kernel, in C or Triton; imported by rollout/."""
