"""Draws Figure 3 of Chowdhury & Zhou (2023): regret on hard instances at epsilon = 0.1, 0.5 and 1."""

from arms import time_average

if __name__ == "__main__":
    time_average(3, (("hard", 0.1), ("hard", 0.5), ("hard", 1.0)), __doc__)
