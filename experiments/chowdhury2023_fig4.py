"""Draws Figure 4 of Chowdhury & Zhou (2023): regret by trust model and notion of privacy, on easy instances.

python experiments/chowdhury2023_fig4.py [--radius exact] [--smoke]

CDP-SE trusts the server, LDP-SE nobody, and the Dist-... algorithms use secure aggregation. Dist-RDP-SE is private in
the sense of Renyi DP, Dist-CDP-SE of concentrated DP, all others of pure DP. The panels have epsilon = 0.1, 0.5 and 1.
"""

from common import arms_figure

NAMES = ("CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE")
PANELS: dict[str, tuple[str, float]] = {"a": ("easy", 0.1), "b": ("easy", 0.5), "c": ("easy", 1.0)}

if __name__ == "__main__":
    arms_figure(4, NAMES, PANELS, __doc__)
