"""Draws Figure 1 of Chowdhury & Zhou (2023): regret under pure and Renyi DP without a trusted server, and with one.

python experiments/chowdhury2023_fig1.py [--radius exact | --as authors] [--smoke]

DP-SE trusts the server; Dist-DP-SE (pure DP) and Dist-RDP-SE (Renyi DP) use secure aggregation. Panels (a) and (b) are
easy instances at epsilon = 0.1 and 0.5, panel (c) hard ones at 0.1. Panels (d)-(f) of the ICLR version are drawn by
chowdhury2023_mslr.py.
"""

from arms import LABELS, MATCHES, time_average

PANELS: dict[str, tuple[str, float]] = {"a": ("easy", 0.1), "b": ("easy", 0.5), "c": ("hard", 0.1)}

if __name__ == "__main__":
    time_average(1, LABELS, PANELS, MATCHES, __doc__)
