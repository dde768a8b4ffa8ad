"""Draws Figure 4 of Chowdhury & Zhou (2023): regret by trust model and notion of privacy, on easy instances.

CDP-SE trusts the server, LDP-SE nobody, and the others use secure aggregation. With --as authors batches double, as in
their plot. CDP-SE, LDP-SE and Dist-CDP-SE are then ours, as their code has not been released.
"""

from arms import Claim, time_average

LABELS = ("CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE (s=10)", "Dist-CDP-SE (s=10)")
CLAIMS = (
    Claim("Dist-DP-SE", "CDP-SE", "CDP-SE and Dist-DP-SE are similar", matches=True),
    Claim("Dist-DP-SE", "LDP-SE", "both are much better than LDP-SE"),
    Claim("Dist-RDP-SE (s=10)", "Dist-DP-SE", "Dist-RDP-SE is better than Dist-DP-SE"),
    Claim("Dist-CDP-SE (s=10)", "Dist-RDP-SE (s=10)", "Dist-CDP-SE is better than Dist-RDP-SE"),
)

if __name__ == "__main__":
    time_average(4, (("easy", 0.1), ("easy", 0.5), ("easy", 1.0)), __doc__, labels=LABELS, claims=CLAIMS, growth=2)
