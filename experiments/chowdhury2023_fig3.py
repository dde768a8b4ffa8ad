"""Draws Figure 3 of Chowdhury & Zhou (2023): regret on hard instances at epsilon = 0.1, 0.5 and 1.

python experiments/chowdhury2023_fig3.py [--radius exact] [--smoke]

DP-SE trusts the server; Dist-DP-SE (pure DP) and Dist-RDP-SE (Renyi DP) use secure aggregation.
"""

from common import arms_figure

NAMES = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE")
PANELS: dict[str, tuple[str, float]] = {"a": ("hard", 0.1), "b": ("hard", 0.5), "c": ("hard", 1.0)}

if __name__ == "__main__":
    arms_figure(3, NAMES, PANELS, __doc__)
