"""Arms without features: batched elimination and adaptive comparisons."""
