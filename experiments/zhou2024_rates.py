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

import dataclasses
import math
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, exponent, pick, random_play, steps
from drawing import Says, caption, headline, save
from options import Size
from zhou2024_silos import LARGEST, PARTS, FixedArms, bounds

import fedbandit_jax as fb

M = 100
MODELS = {"silo-level LDP": ("silo_local", fb.plotting.COLOURS[1]), "central": ("central", fb.plotting.COLOURS[5])}
BOUND = "bound of Lemma C.2"
INSTANCES = ("worst gap", "random contexts")
LOOKS: dict[str, dict[str, str]] = {INSTANCES[0]: dict(fmt="o-"), INSTANCES[1]: dict(fmt="s-", mfc="white")}
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
    found = [fb.simulate(env, algo, stride=horizon, throw=False, **run).regret[:, -1] for env in envs]
    means = [one.mean() for one in found]
    print(f"{instance}, {trust}, {of}, B={batch}: {np.round(means)}", flush=True)
    return np.append(max(found, key=np.mean), [bound, random_play(envs[-1]) * horizon])


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


def ratio(curves: list[Curve], instance: str) -> str:
    """Returns by which power of M the regret of silo-level LDP over that of the central model grows, seed by seed."""
    local, central = (pick(curves, f"{instance}, M", model)[0] for model in MODELS)
    found, half = exponent(Curve("", "", local.x, local.y / central.y))
    over = ", ".join(f"{value:.2f}" for value in local.mean / central.mean)
    at = ", ".join(f"{x:,.0f}" for x in local.x)
    return f"{instance}: silo-level LDP over central grows as M^({found:.3f} ± {half:.3f}) ({over} at M = {at})"


def power(curves: list[Curve], instance: str, sweep: str) -> tuple[str, str]:
    """Returns the power of regret of silo-level LDP in words for a title, and for the caption.

    The caption also says which shares of the bound and of uniform play are reached. Two points give no power.
    """
    one, (order, *_) = pick(curves, f"{instance}, {sweep}", "silo-level LDP")[0], SWEEPS[sweep]
    (played,) = pick(curves, one.panel, "uniform play")
    few = len(one.x) < 3
    found, half = exponent(one)
    number = f": {len(one.x)} points" if few else f" {found:.3f} ± {half:.3f}"
    long = f"{instance}{number}"
    if not few and instance == INSTANCES[0]:
        (bound,) = pick(curves, one.panel, f"{one.label}, {BOUND}")
        own, drawn = exponent(bound)[0], exponent(played)[0]
        inside = [name for name, of in (("corollary's", order), ("bound's", own)) if abs(found - of) <= half]
        long += f" (from point to point {steps(one)}; {' and '.join(inside) or 'neither corollary nor bound'} in this "
        long += "interval; power of the bound "
        long += (
            f"{own:.3f}, of uniform play {drawn:.3f}; {share(one, bound)} of the bound, {share(one, played)} of random "
        )
        return f"{instance}{number}", f"{long}play)" + whole_batches(one)
    drawn = "" if few else f"power of uniform play {round(exponent(played)[0], 3) + 0:.3f}; "
    return f"{instance}{number}", f"{long} ({drawn}{share(one, played)} of uniform play)"


def share(one: Curve, other: Curve) -> str:
    """Returns the range of the means of a curve in % of another."""
    shares = 100 * one.mean / other.mean
    return f"{shares.min():.2g} to {shares.max():.2g} %"


def whole_batches(one: Curve) -> str:
    """Returns a word on points whose seeds all have the same regret: it is lost in whole batches, by all silos."""
    same = [f"{one.mean[i]:,.0f} at {one.x[i]:.3g}" for i in range(len(one.x)) if np.ptp(one.y[i]) == 0]
    why = "all silos lose a batch or none does, so that regret has few values"
    return f"; all {one.n_seeds} seeds have {', '.join(same)}: {why}" if same else ""


def main(options: Size) -> None:
    curves = options.numbers("zhou2024_rates", lambda: measure(options))
    figure, axes = plt.subplots(2, 3, figsize=(12.5, 8.6))
    lines = []
    for ax, letter, (sweep, (order, what, _)) in zip(axes.flat, "abcdef", SWEEPS.items()):
        for instance, look in LOOKS.items():
            for one in pick(curves, f"{instance}, {sweep}"):
                colour, line = one.style.split()
                if one.label in MODELS:
                    label = f"{instance}: {one.label}{' in (a)' * (one.label == 'central')}"
                    ax.errorbar(one.x, one.mean, one.error, color=colour, label=label, markersize=5, capsize=2, **look)
                else:
                    mark = dict(marker=look["fmt"][0], mfc=look.get("mfc")) if one.label == "uniform play" else {}
                    label = f"{instance}: {one.label.replace('central', 'central in (a)')}"
                    ax.plot(one.x, one.mean, line, color=colour, linewidth=1, label=label, markersize=4, **mark)
        local = pick(curves, f"{INSTANCES[0]}, {sweep}", "silo-level LDP")[0]
        label = f"{INSTANCES[0]}: power of Corollary 5.2, through the first point"
        ax.plot(
            local.x, local.mean[0] * (local.x / local.x[0]) ** order, "-", color="#BBBBBB", linewidth=1, label=label
        )
        short, seen = zip(*(power(curves, instance, sweep) for instance in INSTANCES))
        own = exponent(pick(curves, local.panel, f"{local.label}, {BOUND}")[0])[0]
        name = sweep if what == "epsilon" else NAMES[what]
        seen_here = short[0].removeprefix(f"{INSTANCES[0]} ")
        ax.set_title(f"({letter}) {name}\ncorollary {order:g}, bound {own:.2f}, seen {seen_here}", fontsize="small")
        x = sorted({*local.x, *pick(curves, f"{INSTANCES[1]}, {sweep}", "silo-level LDP")[0].x})
        ax.set(xscale="log", yscale="log", xlabel=NAMES[what])
        ax.set_xticks(x, [f"{value:,.0f}" if value >= 25 else f"{value:.3g}" for value in x])
        ax.minorticks_off()
        found = "; ".join(seen)
        if what == "M":
            found += "; " + "; ".join(ratio(curves, instance) for instance in INSTANCES)
        claim, size = f"power {order:g} of {sweep}", "the same" if lines else "no experiment in the paper"
        lines.append(Says("Corollary 5.2", claim if lines else CLAIM + claim, size, f"({letter}) {found}"))
    for ax in axes[:, 0]:
        ax.set_ylabel("group regret at T")
    entries = {name: handle for ax in axes.flat for handle, name in zip(*ax.get_legend_handles_labels())}
    names, handles = zip(*sorted(entries.items(), key=lambda entry: entry[0]))
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    n = pick(curves, label="silo-level LDP")[0].n_seeds
    title = (
        f"Powers of Corollary 5.2, all certified; mean of {n} seeds ± one standard error, powers with 95 % intervals"
    )
    headline(figure, "Regret against the powers of Corollary 5.2", title)
    where = (
        f"M = {M}, B = √(T/M), ε = 1, δ = 0.1 where they do not vary; worst gap: K = d unit vectors, the "
        "worse of two gaps near β √(d/(MT)), at most 1/2 (uniform play at the larger: 1 − 1/d of β √(dMT)), T = 10,000 "
        "(1,000 for M), d = 2; random contexts: sphere, K = 10, the paper's widths, T = 1,000, d = 10"
    )
    lines[0] = dataclasses.replace(lines[0], size=f"{lines[0].size}; {where}")
    caption(figure, "Zhou & Chowdhury (2024)", *lines)
    save("zhou2024_rates", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
