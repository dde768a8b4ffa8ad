"""Samplers of noise with right tails."""
