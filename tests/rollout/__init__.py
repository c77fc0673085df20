"""Rollouts and what they need."""
