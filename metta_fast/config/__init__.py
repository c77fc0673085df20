"""The configuration: dataclasses of keys, their checks, command-line options; imported wherever a key is read."""
