"""Draws Theorem 3 of Chowdhury & Zhou (2023): pure DP by a shuffler of bits in place of secure aggregation.

python experiments/chowdhury2023_shuffle.py [--radius exact] [--smoke]

The theorem has the same orders of regret and of bits as with secure aggregation; the noise has half of epsilon. Panel
(d) is what a user sends in a batch of n users. The paper counts the bits of a message before it is mapped to the bits
that are shuffled; these are as many as the protocol of Cheu & Yan (2021) needs, with the constants of its proof.
"""

from typing import Any

import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power
from curves import Curve, of_result, panels, pick, ratios, the
from drawing import Panel, Picture, Says, show

import fedbandit_jax as fb

LOOKS = {
    "CDP-SE": "#E69F00 - o",
    "LDP-SE": "#56B4E9 - s",
    "Dist-DP-SE": "#D55E00 - o",
    "Shuffle-DP-SE": "#CC79A7 - ^",
}
EPSILONS = (0.1, 0.5, 1.0)


def measure(options: RadiusOptions) -> list[Curve]:
    """Returns regrets over time in panels (a) to (c), and bits over the users of a batch in (d)."""
    env, run, curves = fb.envs.arms(10, instance="easy"), options.arguments(HORIZONS["easy"]), []
    for letter, epsilon in zip("abc", EPSILONS):
        algos = {label: elimination(label, epsilon, radius=options.radius) for label in LOOKS}
        curves += of_result(options.sweep(env, algos, **run), f"({letter}) ε = {epsilon:g}")
    for label, look in LOOKS.items():
        protocol = elimination(label, EPSILONS[-1]).bind(env.spec, run["horizon"]).protocol
        asked = np.flatnonzero(protocol.users)
        users, bits = np.asarray(protocol.users)[asked], np.asarray(protocol.bits)[asked]
        curves.append(Curve("bits", label, users, bits, look))
    return curves


def picture(curves: list[Curve], how: str) -> Picture:
    shown, sent = [], pick(curves, "bits")
    for title in panels(curves)[:-1]:
        panel = pick(curves, title)
        axes: dict[str, Any] = dict(xscale="log", yscale="log", xlim=(1000, panel[0].x[-1]))
        words = title[4:], "user $t$", "time-average regret, Reg$(t)/t$"
        shown.append(Panel([one.per(one.x) for one in panel], *words, kind="lines", **axes))
    words = "bits; all but Shuffle-DP-SE coincide", "n users in a batch", "bits that a user sends"
    shown.append(Panel(sent, *words, label="", xscale="log", yscale="log"))
    regrets = [one for one in curves if one.panel != "bits"]
    found = "; ".join(ratios(regrets, one, "Dist-DP-SE") for one in ("Shuffle-DP-SE", "CDP-SE", "LDP-SE"))
    bits = the(curves, "bits", "Shuffle-DP-SE")
    law = np.polyfit(np.log(bits.x), np.log(bits.mean), 1)[0]
    many = f"as worded, before a message is mapped to bits; users then send {bits.mean[0]:,.0f} bits for n = 2 and "
    many += f"{bits.mean[-1]:.2g} for n = {bits.x[-1]:,.0f}, as n^{law:.1f}, by the protocol that its proof cites"
    ours = f"no figure; {regrets[0].n_seeds} instances here"
    return Picture(
        shown,
        "Shuffling stays within twice secure aggregation",
        f"K = 10, T = {power(HORIZONS['easy'])}, p = 0.1, {how}. Mean of {regrets[0].n_seeds} easy instances ± one "
        "standard error. All are certified (pure DP). A flat curve is uniform play. (d) is at ε = 1",
        [
            Says("Theorem 3", "regret has the order of secure aggregation", ours, f"regret at T, by panel: {found}"),
            Says("Theorem 3", 'users send O(log m) bits "before S"', ours, many),
        ],
        height=5.6,
        shape=(2, 2),
        ncols=4,
    )


if __name__ == "__main__":
    options = tyro.cli(RadiusOptions, description=__doc__)
    show(options, lambda: measure(options), lambda curves: picture(curves, options.how))
