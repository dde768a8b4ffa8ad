"""Algorithms for returning users on many servers, in clusters of similar users."""
