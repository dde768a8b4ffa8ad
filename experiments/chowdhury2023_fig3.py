"""Figure 3 of Chowdhury & Zhou (2023): hard instances at three privacy levels.

python experiments/chowdhury2023_fig3.py [--radius exact] [--smoke]
"""

from common import arms_figure

NAMES = ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE")
PANELS: dict[str, tuple[str, float]] = {"a": ("hard", 0.1), "b": ("hard", 0.5), "c": ("hard", 1.0)}

if __name__ == "__main__":
    arms_figure(3, NAMES, PANELS, __doc__)
