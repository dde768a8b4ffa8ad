"""Draws Figure 3 of Chowdhury & Zhou (2023): regret on hard instances at epsilon = 0.1, 0.5 and 1.

python experiments/chowdhury2023_fig3.py [--radius exact | --as authors] [--smoke]

DP-SE trusts the server; Dist-DP-SE (pure DP) and Dist-RDP-SE (Renyi DP) use secure aggregation.
"""

from arms import LABELS, MATCHES, time_average

PANELS: dict[str, tuple[str, float]] = {"a": ("hard", 0.1), "b": ("hard", 0.5), "c": ("hard", 1.0)}

if __name__ == "__main__":
    time_average(3, LABELS, PANELS, MATCHES, __doc__)
