"""Runs algorithms in environments: runners, grids, batching, records and checkpoints."""
