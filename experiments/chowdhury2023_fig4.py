"""Figure 4 of Chowdhury & Zhou (2023): the three trust models and three notions of privacy.

python experiments/chowdhury2023_fig4.py [--radius exact] [--smoke]
"""

from common import arms_figure

NAMES = ("CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE")
PANELS: dict[str, tuple[str, float]] = {"a": ("easy", 0.1), "b": ("easy", 0.5), "c": ("easy", 1.0)}

if __name__ == "__main__":
    arms_figure(4, NAMES, PANELS, __doc__)
