"""Turns typed words and YAML into a complete, checked configuration; imported by run/, bench/ and cli.py."""
