"""mingru."""
