"""Measures the powers of M, T, d, epsilon and delta in Corollary 5.2 of Zhou & Chowdhury (2024).

python experiments/zhou2024_rates.py [--smoke | --full] [--redraw]

The corollary: with batches of B = sqrt(T / M) rounds silo-level LDP has regret of order T^(1/2) (M d)^(3/4)
log^(1/4)(1 / delta) / epsilon^(1/2). One of M, T, d, epsilon and delta varies, and M = 100 otherwise. Where M varies,
the central model is there too: the paper has it at a factor of M^(1/4) less. At the worst gap everybody is offered the
d unit vectors, one of which is better by the gap at which regret is largest, as in zhou2024_silos.py. Elsewhere
contexts are random, with the paper's confidence widths. Noise is calibrated exactly. At delta = 0.1 exact noise is not
in proportion to 1 / epsilon: as epsilon goes to 0 a finite noise is enough for delta alone. So epsilon is varied at
delta = 10^-6, too.
"""

import math
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, exponent, pick
from drawing import Says, caption, legend_of_all, save, slope
from options import Size
from zhou2024_silos import LARGEST, PARTS, FixedArms

import fedbandit_jax as fb

M = 100
MODELS = {"silo-level LDP": ("silo_local", fb.plotting.COLOURS[1]), "central": ("central", fb.plotting.COLOURS[5])}
BOUND = r"its bound $\beta\sqrt{dMT}$"
INSTANCES = ("worst gap", "random contexts")
LOOKS: dict[str, dict[str, str]] = {INSTANCES[0]: dict(fmt="o-"), INSTANCES[1]: dict(fmt="s-", mfc="white")}
CLAIM = "T^(1/2) (M d)^(3/4) log^(1/4)(1/δ) / ε^(1/2), up to logarithms"
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


def regret(instance: str, trust: str, options: Size, of: dict[str, float]) -> np.ndarray:
    """Returns the final regret (S,), at the worse of two gaps, and beta sqrt(d M T), which is nan without gaps."""
    horizon, m = (options.pick(few, *[int(of[name])] * 2) for name, few in (("T", 48), ("M", 4)))
    dim = int(of["d"])
    batch = max(1, round(math.sqrt(horizon / m)))
    horizon -= horizon % batch
    privacy = fb.privacy.Mechanism(fb.privacy.Budget(of["epsilon"], of["delta"]), "tree", trust)
    algo = fb.algos.Federated(policy=fb.algos.UCB(), schedule=batch, privacy=privacy)
    envs, bound = [fb.envs.sphere(m, 10, dim, rewards="bernoulli")], math.nan
    if instance == "worst gap":
        spec = fb.Spec(n_agents=m, n_arms=dim, dim=dim, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        policy: Any = algo.bind(spec, horizon).policy
        bound = float(policy.width(horizon)) * math.sqrt(dim * m * horizon)
        envs = [FixedArms(gap=min(LARGEST, part * bound / m / horizon), spec=spec) for part in PARTS]
    run: dict[str, Any] = dict(horizon=horizon, key=jax.random.key(options.seed), seeds=options.pick(2, 4, 25))
    found = [fb.simulate(env, algo, stride=horizon, throw=False, **run).regret[:, -1] for env in envs]
    means = [one.mean() for one in found]
    print(f"{instance}, {trust}, {of}, B={batch}: {np.round(means)}", flush=True)
    return np.append(max(found, key=np.mean), bound)


def measure(options: Size) -> list[Curve]:
    """Returns a curve of regret, and one of the bound with its logarithms, for every sweep, instance and model."""
    curves = []
    for instance in INSTANCES:
        for sweep, (_, what, others) in SWEEPS.items():
            small = instance == "random contexts"
            base = dict(M=M, T=1e3 if small else 1e4, d=10 if small else 2, epsilon=1.0, delta=0.1) | others
            for model, (trust, colour) in list(MODELS.items())[: 2 if what == "M" else 1]:
                x = values(what, instance, options)
                found = np.stack([regret(instance, trust, options, {**base, what: value}) for value in x])
                at = np.log(1 / np.array(x)) if what == "delta" else np.array(x)
                curves.append(Curve(f"{instance}, {sweep}", model, at, found[:, :-1], f"{colour} -"))
                if np.isfinite(found[:, -1]).all():
                    name = f"{model}, {BOUND}"
                    curves.append(Curve(f"{instance}, {sweep}", name, at, found[:, -1], f"{colour} :"))
    return curves


def ratio(curves: list[Curve], instance: str) -> str:
    """Returns by which power of M the regret of silo-level LDP over that of the central model grows, seed by seed."""
    local, central = (pick(curves, f"{instance}, M", model)[0] for model in MODELS)
    found, half = exponent(Curve("", "", local.x, local.y / central.y))
    over = ", ".join(f"{value:.2f}" for value in local.mean / central.mean)
    at = ", ".join(f"{x:,.0f}" for x in local.x)
    return f"{instance}: silo-level LDP over central grows as M^({found:.3f} ± {half:.3f}) ({over} at M = {at})"


def power(curves: list[Curve], instance: str, sweep: str) -> tuple[str, str]:
    """Returns the power of regret of silo-level LDP, and of its bound, in a few words for a title, and for the caption.

    The caption also says which share of the bound is reached.
    """
    one = pick(curves, f"{instance}, {sweep}", "silo-level LDP")[0]
    found, half = exponent(one)
    short, long = f"{instance} {found:.2f} ± {half:.2f}", f"{instance} {found:.3f} ± {half:.3f}"
    if bound := pick(curves, one.panel, f"{one.label}, {BOUND}"):
        own, shares = exponent(bound[0])[0], 100 * one.mean / bound[0].mean
        side = "inside" if abs(found - own) <= half else "outside"
        short += f", its bound {own:.2f}"
        long += (
            f" (its bound's {own:.3f} is {side} this interval; regret is {shares.min():.0f} to {shares.max():.0f} % "
        )
        long += "of the bound)"
    points = f" ({len(one.x)} points)" if len(one.x) < 3 else ""
    return short + points, long + points


def main(options: Size) -> None:
    curves = options.numbers("zhou2024_rates", lambda: measure(options))
    figure, axes = plt.subplots(2, 3, figsize=(11.0, 8.2), layout="constrained")
    lines, size = [], "no experiment in the paper"
    for ax, letter, (sweep, (order, what, _)) in zip(axes.flat, "abcdef", SWEEPS.items()):
        for instance, look in LOOKS.items():
            for one in pick(curves, f"{instance}, {sweep}"):
                colour, (model, *bound) = one.style.split()[0], one.label.split(", ")
                if bound:
                    ax.plot(one.x, one.mean, "--", color=colour, linewidth=1, label=f"{model}: {BOUND}")
                else:
                    label = f"{model}, {instance}"
                    ax.errorbar(one.x, one.mean, one.error, color=colour, label=label, markersize=5, capsize=2, **look)
        local = pick(curves, f"{INSTANCES[0]}, {sweep}", "silo-level LDP")[0]
        slope(ax, order, local.x.tolist(), local.mean[0], "the power of Corollary 5.2, through the first point")
        short, seen = zip(*(power(curves, instance, sweep) for instance in INSTANCES))
        ax.set_title("\n".join([f"({letter}) {sweep}: corollary {order:g}", *short]), fontsize="small")
        x = sorted({*local.x, *pick(curves, f"{INSTANCES[1]}, {sweep}", "silo-level LDP")[0].x})
        ax.set(xscale="log", yscale="log", xlabel=NAMES[what])
        ax.set_xticks(x, [f"{value:,.0f}" if value >= 25 else f"{value:.3g}" for value in x])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
        claim = f"regret is of order {CLAIM}: power of {sweep} {order:g}"
        found = "; ".join(seen)
        if what == "M":
            found += "; " + "; ".join(ratio(curves, instance) for instance in INSTANCES)
        lines.append(Says("Corollary 5.2", claim, size, f"({letter}) {found}"))
    for ax in axes[:, 0]:
        ax.set_ylabel("group regret at T")
    legend_of_all(figure)
    n = pick(curves, label="silo-level LDP")[0].n_seeds
    figure.suptitle(
        f"M = {M}, $B=\\sqrt{{T/M}}$, ε = 1, δ = 0.1 where they do not vary; certified; "
        f"mean of {n} seeds ± one standard error, powers with 95 % intervals\n"
        "worst gap: K = d unit vectors, the worse of two gaps near $\\beta\\sqrt{d/(MT)}$, "
        "T = 10,000 (1,000 for M) and d = 2 where they do not vary\n"
        "random contexts: sphere, K = 10, the paper's widths, T = 1,000 and d = 10 where they do not vary",
        fontsize="medium",
    )
    caption(figure, "Zhou & Chowdhury (2024)", *lines)
    print(figure.get_label())
    save("zhou2024_rates", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
