"""Slow, plain references of the fast code; imported by tests only."""
