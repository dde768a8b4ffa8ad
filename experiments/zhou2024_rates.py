"""Measures the powers of M, T, d, epsilon and delta in Corollary 5.2 of Zhou & Chowdhury (2024).

python experiments/zhou2024_rates.py [--smoke | --full] [--redraw]

The corollary: with batches of B = sqrt(T / M) rounds silo-level LDP has regret of order T^(1/2) (M d)^(3/4)
log^(1/4)(1 / delta) / epsilon^(1/2). One of M, T, d, epsilon and delta varies, and M = 100 otherwise. Where M varies,
the central model is there too: the paper has it at a factor of M^(1/4) less. At the worst gap everybody is offered the
d unit vectors, one of which is better by the gap at which regret is largest, as in zhou2024_silos.py; uniform play has
1 - 1/d of beta sqrt(d M T) at the larger gap, unless that is cut at 1/2. Bounds are the leading term of Lemma C.2, beta
sqrt(d M T ln(1 + M T / (d lambda_min))), with the noise that is drawn. Elsewhere contexts are random, with the paper's
confidence widths. Noise is calibrated exactly. At delta = 0.1 exact noise is not in proportion to 1 / epsilon: as
epsilon goes to 0 a finite noise is enough for delta alone. So epsilon is varied at delta = 10^-6, too.
"""

import math
from typing import Any

import jax
import numpy as np
from curves import Curve, exponent, final, pick, pm, random_play, steps, the
from drawing import CHANCE, Panel, Picture, Says, main, slope
from options import Size
from zhou2024_silos import LARGEST, PARTS, FixedArms, bounds

import fedbandit_jax as fb

M = 100
MODELS = {"silo-level LDP": ("silo_local", fb.plotting.COLOURS[1]), "central": ("central", fb.plotting.COLOURS[5])}
BOUND = "bound of Lemma C.2"
INSTANCES = ("worst gap", "random contexts")
CLAIM = "regret is of order T^(1/2) (M d)^(3/4) log^(1/4)(1/δ) / ε^(1/2), up to logarithms: "
NAMES = {"M": "silos M", "T": "rounds T", "d": "features d", "epsilon": "ε", "delta": "ln(1/δ)"}
SWEEPS: dict[str, tuple[float, str, dict[str, float]]] = {  # panel -> power in the bound, what varies, other values
    "M": (0.75, "M", {"T": 1e3}),
    "T": (0.5, "T", {}),
    "d": (0.75, "d", {}),
    "ε, δ = 0.1": (-0.5, "epsilon", {}),
    "ε, δ = $10^{-6}$": (-0.5, "epsilon", {"delta": 1e-6}),
    "ln(1/δ)": (0.25, "delta", {}),
}


def values(what: str, instance: str, options: Size) -> tuple[float, ...]:
    """Returns the values of what varies."""
    long = (1e5,) if instance == "worst gap" or options.full else ()
    found: dict[str, tuple[float, ...]] = {
        "T": (1e3, 1e4, *long),
        "M": (10, 100, 1_000),
        "d": (2, 4, 8) if instance == "worst gap" else (5, 10, 20),
        "epsilon": (0.2, 1, 5, 25),
        "delta": (1e-3, 1e-6, 1e-9),
    }
    return options.pick(found[what][:2], found[what], found[what])


def setting(instance: str, sweep: str) -> dict[str, float]:
    """Returns the values of what does not vary."""
    small = instance == "random contexts"
    base = dict(M=M, T=1e3 if small else 1e4, d=10 if small else 2, epsilon=1.0, delta=0.1)
    return base | SWEEPS[sweep][2]


def regret(instance: str, trust: str, options: Size, of: dict[str, float]) -> np.ndarray:
    """Returns the final regret (S,) at the worse of two gaps, the bound of Lemma C.2, else nan, and uniform play.

    Uniform play is at the larger gap.
    """
    horizon, m = (options.pick(few, *[int(of[name])] * 2) for name, few in (("T", 48), ("M", 4)))
    dim = int(of["d"])
    batch = max(1, round(math.sqrt(horizon / m)))
    horizon -= horizon % batch
    privacy = fb.privacy.Mechanism(fb.privacy.Budget(of["epsilon"], of["delta"]), "tree", trust)
    algo = fb.algos.Federated(policy=fb.algos.UCB(), schedule=batch, privacy=privacy)
    envs, bound = [fb.envs.sphere(m, 10, dim, rewards="bernoulli")], math.nan
    if instance == "worst gap":
        spec = fb.Spec(n_agents=m, n_arms=dim, dim=dim, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        scale, bound = bounds(algo, spec, horizon)
        envs = [FixedArms(gap=min(LARGEST, part * scale / m / horizon), spec=spec) for part in PARTS]
    run: dict[str, Any] = dict(horizon=horizon, key=jax.random.key(options.seed), seeds=options.pick(2, 8, 25))
    found = [fb.simulate(env, algo, stride=horizon, throw=False, **run) for env in envs]
    regrets = [final(one) for one in found]
    print(f"{instance}, {trust}, {of}, B={batch}: {np.round(np.mean(regrets, 1))}", flush=True)
    return np.append(max(regrets, key=np.mean), [bound, random_play(envs[-1]) * horizon])


def measure(options: Size) -> list[Curve]:
    """Returns curves of regret, of the bound of Lemma C.2 and of uniform play, for every sweep and instance."""
    curves = []
    for instance in INSTANCES:
        for sweep, (_, what, _) in SWEEPS.items():
            base, panel = setting(instance, sweep), f"{instance}, {sweep}"
            for model, (trust, colour) in list(MODELS.items())[: 2 if what == "M" else 1]:
                x = values(what, instance, options)
                found = np.stack([regret(instance, trust, options, {**base, what: value}) for value in x])
                at = np.log(1 / np.array(x)) if what == "delta" else np.array(x)
                curves.append(Curve(panel, model, at, found[:, :-2], f"{colour} -"))
                if np.isfinite(found[:, -2]).all():
                    curves.append(Curve(panel, f"{model}, {BOUND}", at, found[:, -2], f"{colour} --"))
                if trust == "silo_local":
                    curves.append(Curve(panel, "uniform play", at, found[:, -1], "#999999 -."))
    return curves


def power(curves: list[Curve], instance: str, sweep: str) -> str:
    """Returns the power of regret in an instance, those of its bound and of uniform play, and shares of both."""
    panel = f"{instance}, {sweep}"
    one, played = (the(curves, panel, label) for label in ("silo-level LDP", CHANCE))
    words = f"{instance} {pm(*exponent(one), 3) if len(one.x) > 2 else 'two points'} (from point to point {steps(one)}"
    for bound in pick(curves, panel, f"{one.label}, {BOUND}"):
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
    for letter, (sweep, (order, what, _)) in zip("abcdef", SWEEPS.items()):
        ones, x = [], set()
        for instance, mark in zip(INSTANCES, "os"):
            for one in pick(curves, f"{instance}, {sweep}"):
                look = f"{one.style} {mark}" if one.label in MODELS else one.style
                ones.append(one.but(label=f"{instance}: {one.label}", style=look))
                x |= {*one.x}
        local = the(curves, f"{INSTANCES[0]}, {sweep}", "silo-level LDP")
        bound = exponent(the(curves, local.panel, f"{local.label}, {BOUND}"))[0]
        found = pm(*exponent(local), 3) if len(local.x) > 2 else "two points"
        title = f"{sweep if what == 'epsilon' else NAMES[what]}\ncorollary {order:g}, bound {bound:.2f}, seen {found}"
        panel = Panel(ones, title, NAMES[what], "group regret at T" * (letter in "ad"), xscale="log", yscale="log")
        panel.xticks = {value: f"{value:,.0f}" if value >= 25 else f"{value:.3g}" for value in sorted(x)}
        panel.open = lambda one: one.label.startswith(INSTANCES[1])
        words = f"{INSTANCES[0]}: power of Corollary 5.2"
        panel.also = lambda ax, at=(order, local.x, local.mean[0], words): slope(ax, *at)
        shown.append(panel)
        seen = f"({letter}) {'; '.join(power(curves, instance, sweep) for instance in INSTANCES)}"
        lines.append(Says("Corollary 5.2", f"{CLAIM}power {order:g} of {sweep}", "no experiment in the paper", seen))
    n = the(curves, f"{INSTANCES[0]}, T", "silo-level LDP").n_seeds
    return Picture(
        shown,
        "Regret against the powers of Corollary 5.2",
        f"M = {M}, B = √(T/M), ε = 1 and δ = 0.1 where they do not vary. All are certified. Mean of {n} seeds ± one "
        "standard error, powers with 95 % intervals. Worst gap: K = d unit vectors, d = 2, T = 10,000 (1,000 for M), "
        "at the worse of two gaps near β √(d/(MT)). Random contexts: a sphere, K = 10, d = 10, T = 1,000, the paper's "
        "widths",
        lines,
        height=5.5,
        shape=(2, 3),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
