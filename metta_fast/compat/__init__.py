"""Keeps older code working: the import paths that public names had before."""
