"""Holds the scripted agent, which plays the grid by hand-written rules: a yardstick for trained policies."""
