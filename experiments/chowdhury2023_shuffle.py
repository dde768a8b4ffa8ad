"""Draws Theorem 3 of Chowdhury & Zhou (2023): pure DP by a shuffler of bits in place of secure aggregation.

The theorem has the orders of regret and of bits with secure aggregation. It counts the bits of a message. (d) has the
bits that are shuffled, by the protocol of Cheu & Yan (2021) with the constants of its proof.
"""

import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power
from curves import Curve, of_result, panels, pick, ratios, the
from drawing import LOGS, Panel, Picture, Says, dressed, show

import fedbandit_jax as fb

LOOKS = {"CDP-SE": "#E69F00 - o", "LDP-SE": "#56B4E9 - s", "Dist-DP-SE": "#D55E00 - o", "Shuffle-DP-SE": "#CC79A7 - ^"}
EPSILONS = {"a": 0.1, "b": 0.5, "c": 1.0}


def measure(options: RadiusOptions) -> list[Curve]:
    env, run, curves = fb.envs.arms(10, instance="easy"), options.arguments(HORIZONS["easy"]), []
    for letter, epsilon in EPSILONS.items():
        algos = {label: elimination(label, epsilon, radius=options.radius) for label in LOOKS}
        curves += of_result(options.sweep(env, algos, **run), f"({letter}) ε = {epsilon:g}")
    for label, look in LOOKS.items():
        protocol = elimination(label, EPSILONS["c"]).bind(env.spec, run["horizon"]).protocol
        asked = np.flatnonzero(protocol.users)
        users, bits = (np.asarray(of)[asked] for of in (protocol.users, protocol.bits))
        curves.append(Curve("bits", label, users, bits, look))
    return curves


def picture(curves: list[Curve], how: str) -> Picture:
    shown, n = [], curves[0].n_seeds
    for title in panels(curves)[:-1]:
        panel = [one.per(one.x) for one in dressed(pick(curves, title), LOOKS)]
        words = title[4:], "user $t$", "time-average regret, Reg$(t)/t$"
        shown.append(Panel(panel, *words, kind="lines", xlim=(1000, panel[0].x[-1]), **LOGS))
    words = "bits; all but Shuffle-DP-SE coincide", "n users in a batch", "bits that a user sends"
    shown.append(Panel(pick(curves, "bits"), *words, label="", **LOGS))
    regrets = [one for one in curves if one.panel != "bits"]
    found = "; ".join(ratios(regrets, one, "Dist-DP-SE") for one in ("Shuffle-DP-SE", "CDP-SE", "LDP-SE"))
    bits = the(curves, "bits", "Shuffle-DP-SE")
    law = np.polyfit(np.log(bits.x), np.log(bits.mean), 1)[0]
    many = f"as worded, before a message is mapped to bits; users then send {bits.mean[0]:,.0f} bits for n = 2 and "
    many += f"{bits.mean[-1]:.2g} for n = {bits.x[-1]:,.0f}, as n^{law:.1f}, by the protocol that its proof cites"
    theorem, ours = "Theorem 3", f"no figure; {n} instances here"
    says = [
        Says(theorem, "regret has the order of secure aggregation", ours, f"regret at T, by panel: {found}"),
        Says(theorem, 'users send O(log m) bits "before S"', ours, many),
    ]
    setting = f"""K = 10, T = {power(HORIZONS["easy"])}, p = 0.1, {how}. Mean of {n} easy instances ± one standard
        error. All are certified (pure DP). A flat curve is uniform play. (d) is at ε = 1"""
    title = "Shuffling stays within twice secure aggregation"
    return Picture(shown, title, setting, says, shape=(2, 2))


if __name__ == "__main__":
    options = tyro.cli(RadiusOptions, description=__doc__)
    show(options, lambda: measure(options), lambda curves: picture(curves, options.how))
