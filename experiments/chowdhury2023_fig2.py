"""Draws Figure 2 of Chowdhury & Zhou (2023): regret on easy instances at epsilon = 0.1, 0.5 and 1.

python experiments/chowdhury2023_fig2.py [--radius exact | --as authors] [--smoke]

DP-SE trusts the server; Dist-DP-SE (pure DP) and Dist-RDP-SE (Renyi DP) use secure aggregation.
"""

from arms import LABELS, MATCHES, time_average

PANELS: dict[str, tuple[str, float]] = {"a": ("easy", 0.1), "b": ("easy", 0.5), "c": ("easy", 1.0)}

if __name__ == "__main__":
    time_average(2, LABELS, PANELS, MATCHES, __doc__)
