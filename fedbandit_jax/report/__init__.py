"""Results as tables, figures and files, without JAX."""
