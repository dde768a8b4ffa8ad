"""Multi-armed bandits by batched elimination."""
