"""Draws Figure 2 of Chowdhury & Zhou (2023): regret on easy instances at epsilon = 0.1, 0.5 and 1."""

from arms import time_average

if __name__ == "__main__":
    time_average(2, (("easy", 0.1), ("easy", 0.5), ("easy", 1.0)), __doc__)
