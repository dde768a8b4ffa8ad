"""Federated linear bandits: policies, the loops that run them, and the algorithms of the papers."""
