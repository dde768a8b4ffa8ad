"""Shows what certified privacy costs when every part of Private-FedLinUCB is as good as we know how.

python experiments/beyond.py [--smoke | --full] [--redraw]

(a) Regret against epsilon at delta = 0.1, on the synthetic instance of Zhou & Chowdhury (2024); all algorithms have the
same confidence constants alpha, R and S. (b), (c) One ingredient after the other at epsilon = 1, for delta = 0.1
and for delta = 10^-7 (there are 10^6 users). The width "from known noise" is narrower even without noise, so it is
compared with itself at epsilon = 10^4, where noise is next to nothing.
"""

import re
from typing import Any

import matplotlib.pyplot as plt
import tyro
from curves import Curve, against, ends, mean_error, pick, random_play
from drawing import headline, legend_of_all, promised, remark, save
from matplotlib.axes import Axes
from options import Size

import fedbandit_jax as fb

BEST: dict[str, Any] = dict(release="blt", regularizer="project", confidence="known_noise")
DELTAS = (0.1, 1e-7)


def private(name: str, delta: float = 0.1, **parameters) -> fb.Algorithm:
    budget = fb.privacy.Budget(parameters.pop("epsilon", 1.0), delta)
    return fb.algos.private_fed_lin_ucb(budget, name=name).replace(**parameters)


ACROSS = [
    fb.algos.fed_lin_ucb(name="not private"),
    private("binary tree, as printed (Theorem 5.1)", std="theorem_5_1", learns_in_batch=True),
    private("buffered linear Toeplitz noise", release="blt"),
    private("the same, projected, widths from the law of the noise", **BEST),
    private("the same under secure aggregation", trust="secagg", **BEST),
]
STEPS: dict[str, dict] = {  # + is added to all before it
    "binary tree, as printed (Theorem 5.1)": dict(std="theorem_5_1", learns_in_batch=True),
    "+ agents act on released sums only": dict(std="theorem_5_1"),
    "+ exact accounting": {},
    "+ buffered linear Toeplitz noise, not a tree": dict(release="blt"),
    "+ projection of the Gram matrix": dict(release="blt", regularizer="project"),
    "+ confidence widths from the law of the noise": BEST,
    "+ batches of 50, not 25": dict(schedule=50, **BEST),
    "secure aggregation, projected, batches of 25": dict(release="blt", regularizer="project", trust="secagg"),
    "secure aggregation, + widths from that law": dict(trust="secagg", **BEST),
    "those widths, batches of 25, ε = 10⁴": dict(epsilon=1e4, **BEST),
}
SECURE, SECURED, EXACT = list(STEPS)[-3:]
PLAIN = ("not private, acts on synchronised sums only", "not private")


def measure(options: Size) -> list[Curve]:
    """Returns final regret against epsilon, and that of every step at both delta."""
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards="bernoulli")
    run = options.run(50, 10_000, 10_000)
    epsilons = options.pick((1.0,), (0.2, 1.0, 5.0), (0.2, 0.5, 1.0, 2.0, 5.0))
    across = fb.sweep(env, ACROSS[:: options.pick(3, 1, 1)], grid={"epsilon": epsilons}, **run)
    algos = [private(f"{name}, δ = {delta:g}", delta, **parts) for name, parts in STEPS.items() for delta in DELTAS]
    algos += [fb.algos.fed_lin_ucb(name=PLAIN[0], learns_in_batch=False), ACROSS[0]]
    steps = fb.sweep(env, algos, **run)
    for result in (across, steps):
        print(f"\n{result.summary()}")
    title = f"T = {run['horizon']:,}"
    uniform = Curve(
        "uniform play", "uniform play", [0], [random_play(env) * run["horizon"]], "#999999 :", "not private"
    )
    return [
        *against(across, "epsilon", f"against ε, {title}"),
        uniform,
        *ends(steps, f"one ingredient after the other, {title}"),
    ]


def short(mean: float) -> str:
    """Returns a number with three digits, as eight seeds tell no more."""
    return f"{float(f'{mean:.3g}'):,.0f}"


def draw(steps: dict[str, Curve], delta: float, ax: Axes) -> None:
    """Draws the final regret of every step at a delta, and prints the price of privacy at equal widths."""
    found = {name: steps[f"{name}, δ = {delta:g}" if name in STEPS else name] for name in (*STEPS, *PLAIN)}
    for place, (name, one) in enumerate(found.items()):
        face = one.style if one.note == "certified" else "white"
        ax.errorbar(one.mean[0], place, xerr=one.error[0], fmt="o", color=one.style, mfc=face, markersize=7, capsize=3)
        left = one.mean[0] > 3e4  # of the point, as uniform play is right of it
        at, side = one.mean[0] * (0.75 if left else 1.33), "right" if left else "left"
        ax.text(at, place, short(one.mean[0]), va="center", ha=side, fontsize="small")
        base = EXACT if "confidence" in STEPS.get(name, {}) else PLAIN[0]
        more, of_more = mean_error(one.y[0] - found[base].y[0])
        words = f"{one.mean[0]:,.0f} ± {one.error[0]:,.0f}, minus {base}: {more:+,.0f} ± {of_more:,.0f}"
        print(f"δ = {delta:g}, {name}: {words}")
    for rule in (SECURE, EXACT):
        ax.axhline(list(found).index(rule) - 0.5, color="0.6", linewidth=0.8)
    ax.set(xscale="log", xlim=(500, 6e5), xlabel="group regret at T")
    ax.set_yticks(range(len(found)), list(found), fontsize="small")
    ax.grid(False, axis="y")


def main(options: Size) -> None:
    curves = options.numbers("beyond", lambda: measure(options))
    figure, (left, *right) = plt.subplots(1, 3, figsize=(11, 6), width_ratios=(1.1, 1, 1))
    lines, steps = (pick(curves, one.panel) for one in (curves[0], curves[-1]))
    for one, marker in zip(lines, "oos^D"):
        look: dict[str, Any] = dict(color=one.style, marker=marker, capsize=2)
        if one.note != "not private":
            look |= dict(linestyle="-" if one.note == "certified" else "--")
        look |= dict(mfc=one.style if one.note == "certified" else "white")
        label = one.label if one.label == one.note else f"{one.label}: {promised(one.note)}"
        left.errorbar(one.x, one.mean, one.error, label=label, **look)
    left.set(xscale="log", yscale="log", xlabel="ε", ylabel="group regret at T")
    left.set_xticks(lines[0].x, [f"{epsilon:g}" for epsilon in lines[0].x])
    left.minorticks_off()
    left.set_title("(a) against ε, at δ = 0.1")
    uniform = pick(curves, "uniform play")[0].mean[0]
    left.axhline(uniform, color="#999999", linestyle="-.", label="uniform play")
    found = {one.label: one for one in steps}
    for ax, delta, title in zip(right, DELTAS, ("(b) ε = 1, δ = 0.1", "(c) ε = 1, $δ = 10^{-7}$")):
        ax.axvline(uniform, color="#999999", linestyle="-.")
        draw(found, delta, ax)
        ax.invert_yaxis()
        ax.set_title(title)
    right[1].tick_params(labelleft=False)
    n, horizon = lines[0].n_seeds, re.findall("T = (.+)", lines[0].panel)[0]
    size = f"M = 100, K = 100, d = 10, T = {horizon}; mean of {n} seeds ± one standard error"
    headline(
        figure,
        "What certified privacy costs, ingredient by ingredient",
        f"What certified privacy costs; {size}.\nOpen markers: not certified; rows with +: added to all above, between "
        "lines",
    )
    legend_of_all(figure)
    first, last, secure, plain = (
        short(found[f"{name}, δ = 0.1" if name in STEPS else name].mean[0])
        for name in (*list(STEPS)[:1], "+ batches of 50, not 25", SECURED, PLAIN[0])
    )
    remark(
        figure,
        f"At ε = 1 and δ = 0.1 the printed algorithm, whose certificate is weaker than stated, has {first}, the "
        f"certified one with all ingredients {last}, with secure aggregation {secure}, and the one without privacy "
        f"that acts on synchronised sums only {plain}; uniform play has {short(uniform)}.",
    )
    save("beyond", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
