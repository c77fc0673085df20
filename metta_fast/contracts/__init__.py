"""Interfaces and plain data shared by all folders, without torch; imported by every other folder."""
