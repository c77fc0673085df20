"""scaffold."""
