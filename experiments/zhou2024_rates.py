"""Measures the powers of M, T, d, epsilon and delta in Corollary 5.2 of Zhou & Chowdhury (2024).

Batches have B = sqrt(T / M) rounds. Silo-level LDP has regret of order T^(1/2) (M d)^(3/4) log^(1/4)(1 / delta) /
epsilon^(1/2). The central model has a factor of M^(1/4) less. As epsilon goes to 0, a finite noise is enough for
delta = 0.1 alone. So epsilon is varied at delta = 10^-6, too.
"""

import itertools
from typing import Any

import jax
import numpy as np
from curves import Curve, exponent, pick, pm, random_play, steps, the
from drawing import CHANCE, Panel, Picture, Says, main, slope
from options import Size
from zhou2024_silos import RANDOM, WORST, regret

import fedbandit_jax as fb

M, LDP = 100, "silo-level LDP"
MODELS = {LDP: ("silo_local", fb.plotting.COLOURS[1]), "central": ("central", fb.plotting.COLOURS[5])}
BOUND = "bound of Lemma C.2"
CLAIM = "regret is of order T^(1/2) (M d)^(3/4) log^(1/4)(1/δ) / ε^(1/2), up to logarithms: "
NAMES = {"M": "silos M", "T": "rounds T", "d": "features d", "epsilon": "ε", "delta": "ln(1/δ)"}
FIXED: dict[str, dict[str, float]] = {  # values of what does not vary
    WORST: dict(M=M, T=1e4, d=2, epsilon=1.0, delta=0.1),
    RANDOM: dict(M=M, T=1e3, d=10, epsilon=1.0, delta=0.1),
}
SWEEPS: dict[str, tuple[float, str, tuple[float, ...], dict[str, float]]] = {
    # panel -> power in the bound, what varies, its values, and other values of what does not
    "M": (0.75, "M", (10, 100, 1_000), {"T": 1e3}),
    "T": (0.5, "T", (1e3, 1e4, 1e5), {}),
    "d": (0.75, "d", (2, 4, 8), {}),
    "ε, δ = 0.1": (-0.5, "epsilon", (0.2, 1, 5, 25), {}),
    "ε, δ = $10^{-6}$": (-0.5, "epsilon", (0.2, 1, 5, 25), {"delta": 1e-6}),
    "ln(1/δ)": (0.25, "delta", (1e-3, 1e-6, 1e-9), {}),
}


def measure(options: Size) -> list[Curve]:
    curves, run = [], (options.pick(2, 8, 25), jax.random.key(options.seed))
    for (instance, base), (sweep, (_, what, x, other)) in itertools.product(FIXED.items(), SWEEPS.items()):
        if instance == RANDOM and what in "dT":
            x = (5, 10, 20) if what == "d" else x[: options.pick(2, 2, 3)]
        x = x[: options.pick(2, None, None)]
        points: list[dict[str, float]] = [{**base, **other, what: value} for value in x]
        panel, at = f"{instance}, {sweep}", np.log(1 / np.array(x)) if what == "delta" else np.array(x)
        for model, (trust, colour) in list(MODELS.items())[: 2 if what == "M" else 1]:
            found = []
            for of in points:
                privacy = fb.privacy.Mechanism(fb.privacy.Budget(of["epsilon"], of["delta"]), "tree", trust)
                horizon, m = (options.pick(few, *[int(of[name])] * 2) for name, few in (("T", 48), ("M", 4)))
                found.append(regret(instance, fb.algos.UCB(), privacy, (m, 10, int(of["d"])), horizon, *run))
            regrets, bound, envs, horizons = zip(*found)
            curves.append(Curve(panel, model, at, regrets, f"{colour} -"))
            if instance == WORST:
                curves.append(Curve(panel, f"{model}, {BOUND}", at, bound, f"{colour} --"))
            if model == LDP:
                played = [random_play(env) * horizon for env, horizon in zip(envs, horizons)]
                curves.append(Curve(panel, CHANCE, at, played, "#999999 -."))
    return curves


def power(curves: list[Curve], instance: str, sweep: str) -> str:
    """Returns the power of regret in an instance, those of its bound and of uniform play, and shares of both."""
    panel = f"{instance}, {sweep}"
    one, played = (the(curves, panel, label) for label in (LDP, CHANCE))
    words = f"{instance} {pm(*exponent(one), 3) if len(one.x) > 2 else 'two points'} (from point to point {steps(one)}"
    for bound in pick(curves, panel, f"{LDP}, {BOUND}"):
        words += f"; power of the bound {exponent(bound)[0]:.3f}, {share(one, bound)} of it reached"
    words += f"; uniform play {exponent(played)[0]:.3f}, {share(one, played)} of it)"
    for central in pick(curves, panel, "central"):
        words += f", over the central model {pm(*exponent(one.but(y=one.y / central.y)), 3)}"
    return words


def share(one: Curve, other: Curve) -> str:
    """Returns the range of the means of a curve in % of another."""
    shares = 100 * one.mean / other.mean
    return f"{shares.min():.2g} to {shares.max():.2g} %"


def picture(curves: list[Curve]) -> Picture:
    shown, lines = [], []
    for letter, (sweep, (order, what, *_)) in zip("abcdef", SWEEPS.items()):
        ones = []
        for instance, mark in zip(FIXED, "os"):
            for one in pick(curves, f"{instance}, {sweep}"):
                look = f"{one.style} {mark}" if one.label in MODELS else one.style
                look = "#999999 :" if (instance, one.label) == (RANDOM, CHANCE) else look
                ones.append(one.but(label=f"{instance}: {one.label}", style=look))
        local = the(curves, f"{WORST}, {sweep}", LDP)
        bound = exponent(the(curves, local.panel, f"{LDP}, {BOUND}"))[0]
        name = sweep if what == "epsilon" else NAMES[what]
        title = f"{name}: paper {order:g},\nbound {bound:.2f}, seen {exponent(local)[0]:.2f}"
        panel = Panel(ones, title, NAMES[what], "group regret at T" * (letter in "ad"), xscale="log", yscale="log")
        x = sorted({value for one in ones for value in one.x})
        panel.xticks = {value: f"{value:,.0f}" if value >= 25 else f"{value:.3g}" for value in x}
        panel.open = lambda one: one.label.startswith(RANDOM)
        line: Any = order, local.x, local.mean[0], f"{WORST}: power of Corollary 5.2"
        panel.also = lambda ax, line=line: slope(ax, *line)
        shown.append(panel)
        seen = f"({letter}) {'; '.join(power(curves, instance, sweep) for instance in FIXED)}"
        lines.append(Says("Corollary 5.2", f"{CLAIM}power {order:g} of {sweep}", "no experiment in the paper", seen))
    setting = f"""M = {M}, B = √(T/M), ε = 1 and δ = 0.1 where they do not vary. All are certified. Mean of {
        the(curves, f"{WORST}, T", LDP).n_seeds
    } seeds ± one standard error, powers with 95 % intervals. Worst gap: K =
        d unit vectors, d = 2, T = 10,000 (1,000 for M), at the worse of two gaps near β √(d/(MT)). Random contexts: a
        sphere, K = 10, d = 10, T = 1,000, the paper's widths"""
    return Picture(shown, "Regret against the powers of Corollary 5.2", setting, lines, shape=(2, 3))


if __name__ == "__main__":
    main(measure, picture, __doc__)
