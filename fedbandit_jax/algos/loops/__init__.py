"""Loops: what runs round by round, for a policy, a mechanism and a schedule."""
