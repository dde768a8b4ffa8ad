"""Runs algorithms in environments: clocks, grids, batching, records and checkpoints."""
