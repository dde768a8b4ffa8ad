"""Takes an environment and an algorithm to a result: clocks, grids, batching, recording, checkpoints."""
