"""Tests environments of several agents."""
