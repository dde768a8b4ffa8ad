"""Policies, which act on released statistics."""
