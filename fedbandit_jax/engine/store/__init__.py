"""Sweeps in pieces, kept in a folder."""
