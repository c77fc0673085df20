"""First layer for the grid's sparse observations: layout, encoder, kernels; imported by policy/."""
