"""Files that are complete or absent, and locks."""
