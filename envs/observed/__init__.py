"""Says what the leaves of a Python environment's observation hold."""
