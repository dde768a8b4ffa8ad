"""Draws Figure 4 of Chowdhury & Zhou (2023): regret by trust model and notion of privacy, on easy instances.

python experiments/chowdhury2023_fig4.py [--radius exact | --as authors] [--smoke]

CDP-SE trusts the server, LDP-SE nobody, and the Dist-... algorithms use secure aggregation. Dist-RDP-SE is private in
the sense of Renyi DP, Dist-CDP-SE of concentrated DP, all others of pure DP. The panels have epsilon = 0.1, 0.5 and 1.
With --as authors, batches double, as the authors' plot says; CDP-SE, LDP-SE and Dist-CDP-SE are ours, as the code of
these has not been released.
"""

from arms import Claim, time_average

LABELS = ("CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-CDP-SE (s=10)")
CLAIMS = (
    Claim("Dist-DP-SE", "CDP-SE", "CDP-SE and Dist-DP-SE are similar", matches=True),
    Claim("Dist-DP-SE", "LDP-SE", "both are much better than LDP-SE"),
    Claim("Dist-RDP-SE (s=10)", "Dist-DP-SE", "Dist-RDP-SE is better than Dist-DP-SE"),
    Claim("Dist-CDP-SE (s=10)", "Dist-RDP-SE (s=10)", "Dist-CDP-SE is better than Dist-RDP-SE"),
)
PANELS: dict[str, tuple[str, float]] = {"a": ("easy", 0.1), "b": ("easy", 0.5), "c": ("easy", 1.0)}

if __name__ == "__main__":
    time_average(4, LABELS, PANELS, CLAIMS, __doc__, growth=2)
