"""Takes an environment and an algorithm to a result: processes, grids, batching, recording, checkpoints."""
