"""Draws Figure 1 of Chowdhury & Zhou (2023): regret under pure and Renyi DP without a trusted server, and with one.

DP-SE trusts the server, and the others use secure aggregation. chowdhury2023_mslr.py draws (d) to (f).
"""

from arms import time_average

if __name__ == "__main__":
    time_average(1, (("easy", 0.1), ("easy", 0.5), ("hard", 0.1)), __doc__)
