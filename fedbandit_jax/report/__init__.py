"""Turns results into tables, figures and files, without JAX."""
