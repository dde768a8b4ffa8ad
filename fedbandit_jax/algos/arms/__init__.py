"""Algorithms for multi-armed bandits: batched successive elimination of arms."""
