"""Figure 1 of Chowdhury & Zhou (2023): pure and Renyi DP without a trusted server, against a trusted one.

python experiments/chowdhury2023_fig1.py [--radius exact] [--smoke]
"""

from common import arms_figure

NAMES = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE")
PANELS: dict[str, tuple[str, float]] = {"a": ("easy", 0.1), "b": ("easy", 0.5), "c": ("hard", 0.1)}

if __name__ == "__main__":
    arms_figure(1, NAMES, PANELS, __doc__)
