"""Merges the configuration of a run whose checkpoint a start takes over: resume= or init_from=."""
