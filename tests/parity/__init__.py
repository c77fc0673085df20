"""Differential tests: the fast code against tests/reference."""
