"""Draws Theorem 3 of Chowdhury & Zhou (2023): pure DP by a shuffler of bits in place of secure aggregation.

python experiments/chowdhury2023_shuffle.py [--radius exact] [--smoke]

The theorem has the same orders of regret and of bits as with secure aggregation; the noise has half of epsilon. Panel
(d) is what a user sends in a batch of n users. The paper counts the bits of a message before it is mapped to the bits
that are shuffled; these are as many as the protocol of Cheu & Yan (2021) needs, with the constants of its proof.
"""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import tyro
from arms import HORIZONS, RadiusOptions, elimination, power
from curves import Curve, of_result, pick, quotient
from drawing import Says, caption, draw, headline, save

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
        result = fb.sweep(env, {label: elimination(label, epsilon, radius=options.radius) for label in LOOKS}, **run)
        print(f"\n{letter}\n{result.summary()}")
        title = f"({letter}) ε = {epsilon:g}"
        curves += of_result(result, title)
    for label, look in LOOKS.items():
        protocol = elimination(label, EPSILONS[-1]).bind(env.spec, run["horizon"]).protocol
        asked = np.flatnonzero(protocol.users)
        users, bits = np.asarray(protocol.users)[asked], np.asarray(protocol.bits)[asked]
        curves.append(Curve("bits", label, users, bits, look))
    return curves


def main(options: RadiusOptions) -> None:
    curves = options.numbers(f"chowdhury2023_shuffle_{options.variant}", lambda: measure(options))
    figure, grid = plt.subplots(2, 2, figsize=(10, 8.6))
    (*panels, last), sent = list(grid.flat), pick(curves, "bits")
    pairs = [f"{one} / Dist-DP-SE" for one in ("Shuffle-DP-SE", "CDP-SE", "LDP-SE")]
    ratios: dict[str, list[tuple[float, float]]] = {pair: [] for pair in pairs}
    titles = [title for title in dict.fromkeys(one.panel for one in curves) if title != "bits"]
    for ax, title in zip(panels, titles):
        panel = pick(curves, title)
        draw([dataclasses.replace(one, note="") for one in panel], ax, average=True)
        ends = {one.label: one.y[-1] for one in panel}
        for pair, found in ratios.items():
            found.append(quotient(*(ends[name] for name in pair.split(" / "))))
        ax.set(xscale="log", yscale="log", xlabel="user $t$", ylabel="time-average regret, Reg$(t)/t$", title=title)
        ax.set(xlim=(1000, panel[0].x[-1]))
    for one, size in zip(sent, (9, 7, 5, 7)):  # three lie on each other
        colour, line, mark = one.style.split()
        last.plot(one.x, one.mean, mark + line, color=colour, markersize=size, fillstyle="none", markeredgewidth=1.5)
        rise, law = (np.polyfit(np.log2(one.x), y, 1)[0] for y in (one.mean, np.log2(one.mean)))
        print(f"{one.label}: {one.mean[0]:,.0f} to {one.mean[-1]:,.0f} bits for n = {one.x[0]:g} to {one.x[-1]:,.0f}")
        print(f"  {rise:.3g} more for twice as many users, or as n^{law:.2f}")
    last.set(xscale="log", yscale="log", xlabel="n users in a batch", ylabel="bits that a user sends")
    last.set_title(f"(d) ε = {EPSILONS[-1]:g}; all but Shuffle-DP-SE coincide")
    for axis in (last.yaxis, *(ax.xaxis for ax in grid.flat)):
        axis.set_major_formatter(lambda x, _: f"$10^{{{np.log10(x):.0f}}}$")
    names = panels[-1].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    size = f"K = 10, T = {power(HORIZONS['easy'])}, p = 0.1, {options.how}"
    headline(
        figure,
        "Shuffling stays within twice secure aggregation",
        f"Shuffling in place of secure aggregation, all certified (pure DP): {size},\n{curves[0].n_seeds} easy "
        "instances ± one standard error; while a curve is flat, no arm is dropped, as in uniform play",
    )
    shown = {pair: ", ".join(f"{value:.2f} ± {error:.2f}" for value, error in found) for pair, found in ratios.items()}
    words = "; ".join(f"{pair} {found}" for pair, found in shown.items())
    alike = "yes, within the factor 2 of its noise" if max(ratios["Shuffle-DP-SE / Dist-DP-SE"])[0] < 2 else "no"
    words = f"{alike}; regret at T, by panel: {words}"
    (bits,) = pick(curves, "bits", "Shuffle-DP-SE")
    law = np.polyfit(np.log(bits.x), np.log(bits.mean), 1)[0]
    many = f"as worded, before a message is mapped to bits; users then send {bits.mean[0]:,.0f} bits for n = 2 and "
    many += f"{bits.mean[-1]:.2g} for n = {bits.x[-1]:,.0f}, as n^{law:.1f}, by the protocol that its proof cites"
    many += f"; with the others, which coincide in (d), {min(o.mean[0] for o in sent):g} to {sent[0].mean[-1]:g}"
    ours = f"no figure; {curves[0].n_seeds} instances here"
    says = (
        Says("Theorem 3", "regret has the order of secure aggregation", ours, words),
        Says("Theorem 3", 'users send O(log m) bits "before S"', "the same", many),
    )
    caption(figure, "Chowdhury & Zhou (2023)", *says)
    save(f"chowdhury2023_shuffle_{options.variant}", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(RadiusOptions, description=__doc__))
