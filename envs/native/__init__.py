"""The contract between rules written in C and the shells that run them (CPU pool now, GPU later)."""
