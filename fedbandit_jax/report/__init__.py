"""Results to tables, figures and files; no JAX."""
