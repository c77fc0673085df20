"""Finds the environment that env.factory names: one of ours, another library's, or a user's own."""
