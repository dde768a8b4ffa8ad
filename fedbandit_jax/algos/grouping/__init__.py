"""Groupings: which users are alike, from released statistics."""
