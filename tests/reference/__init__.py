"""Slow, plain references of the fast code; tests alone import them."""
