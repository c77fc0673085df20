"""stepping."""
