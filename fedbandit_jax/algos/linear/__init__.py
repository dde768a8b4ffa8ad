"""Federated linear bandits: the policies, the loops that run them, and the algorithms of the papers."""
