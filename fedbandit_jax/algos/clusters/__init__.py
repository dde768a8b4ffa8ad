"""Algorithms for users who come again, may be alike within clusters, and sit on many servers."""
