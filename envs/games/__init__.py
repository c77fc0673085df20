"""Holds environments in C that come with metta_fast, made as anyone would (docs/c_environments.md)."""
