"""Writes the files of a new robot from templates; imported by cli.py."""
