"""Draws what silos that drop out cost: regret and bits against the share of silos that miss each synchronisation.

python experiments/beyond_dropouts.py [--smoke | --full]

Greedy play in batches that double, with noise on every batch ("input_perturbation"), for epsilon = 1 at delta =
1 / (10 M T), without privacy, with noise of every silo, or under secure aggregation with shares of noise of which any
M - f suffice. f is the number of silos that are away at a time, and three standard deviations more. What a silo could
not send comes with its next message, or is lost. (a) Regret. (b) That of secure aggregation alone, also with noise for
f silos that then are all there. (c) Bits that silos send. Held-out seeds; all private runs are certified.
"""

import dataclasses
import math
from typing import Any

import jax
import matplotlib.pyplot as plt
import tyro
from curves import Curve, claimed, pick, quotient, random_play
from drawing import legend_of_all, remark, save
from options import Size

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
A, P = fb.algos, fb.privacy
RATES = (0.0, 0.05, 0.1, 0.2, 0.3)
LOOKS = {
    "no noise": "#000000 -o",
    "noise of every silo": "#D55E00 -s",
    "secure aggregation": "#009E73 -D",
    "secure aggregation, lost": "#66C5AB -v",
}
WORDS = {
    "secure aggregation": "secure aggregation, what is missed comes later",
    "secure aggregation, lost": "secure aggregation, what is missed is lost",
}


@dataclasses.dataclass(frozen=True)
class DropoutsSize(Size):
    """Draw silos that drop out."""


def away(rate: float, silos: int) -> int:
    """Returns f: more silos are away at a time in one synchronisation of a thousand."""
    return min(silos - 1, math.ceil(silos * rate + 3 * math.sqrt(silos * rate * (1 - rate))))


def recipe(name: str, f: int, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns greedy play with this trust model, whose first release is as late as its noise asks for."""
    schedule, privacy = fb.schedules.Geometric(2.0, first=5), None
    if name != "no noise":
        safe = name.startswith("secure")
        privacy = P.Mechanism(
            P.Budget(1.0, 1 / (10 * spec.n_agents * horizon)),
            "input_perturbation",
            "secagg" if safe else "silo_local",
            statistic=P.Linear(centred=True, gram_scale=0.5),
            dropouts=f if safe else 0,
            resends="lost" not in name,
        )
    algo = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy)
    return algo if privacy is None else algo.patient(spec, horizon)


def measure(options: DropoutsSize) -> list[Curve]:
    """Returns regret and bits by the share of silos that are away, and regret with noise for f while all are there."""
    m, k, d = options.pick((8, 4, 3), (M, K, D), (4 * M, K, D))
    horizon, seeds = options.pick(60, T, 2 * T), options.pick(2, 16, 16)
    rates = options.pick(RATES[::3], RATES, RATES)
    key = jax.random.key(options.seed + 1000)  # not the seeds on which anything was tried
    run: dict[str, Any] = dict(horizon=horizon, seeds=seeds, key=key, stride=horizon, throw=False, store=options.store)
    still, found = fb.envs.sphere(m, k, d, rewards="bernoulli"), {}
    for rate in rates:
        env = fb.envs.dropout(still, rate)
        algos = {name: recipe(name, away(rate, m), env.spec, horizon) for name in LOOKS}
        result = fb.sweep(env, algos, **run)
        print(f"{rate:.0%} away\n{result.summary()}", flush=True)
        there = fb.simulate(still, algos["secure aggregation"], **run)
        for name in LOOKS:
            claim = claimed(result[name])
            for panel, values in (("regret", result[name].regret), ("bits", result[name].communication["bits"])):
                found.setdefault((panel, name), []).append((values[:, -1], claim))
        found.setdefault(("regret, all there", "secure aggregation"), []).append((there.regret[:, -1], claimed(there)))
    curves = [
        Curve(panel, name, rates, [y for y, _ in of], LOOKS[name], "; ".join(dict.fromkeys(claim for _, claim in of)))
        for (panel, name), of in found.items()
    ]
    return [
        *curves,
        Curve("random play", "random play", [0], [random_play(still) * horizon], "#999999 :", "not private"),
    ]


def main(options: DropoutsSize) -> None:
    curves = options.numbers("beyond_dropouts", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.8), layout="constrained")
    regret, safe = pick(curves, "regret"), pick(curves, "regret, all there")[0]
    there = dataclasses.replace(
        safe, label="secure aggregation with noise for f, but all are there", style="#00513B -^"
    )
    panels = {
        "(a) group regret at T, logarithmic": regret,
        "(b) group regret at T, secure aggregation": [*regret[2:], there],
        "(c) million bits that silos send": pick(curves, "bits"),
    }
    for ax, (title, ones) in zip(axes, panels.items()):
        for i, one in enumerate(ones):
            colour, look = one.style.split()
            mean, error = (1e-6 * one.mean, 1e-6 * one.error) if "million" in title else (one.mean, one.error)
            x = one.x + 0.006 * (i - 1.5)  # so that what is equal is seen
            ax.errorbar(x, mean, error, fmt=look, color=colour, capsize=3, label=WORDS.get(one.label, one.label))
            shown = ", ".join(f"{x:g}: {y:,.0f} ± {e:,.0f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{title}, {one.label}: {shown}; {one.note}")
        ax.set(xlabel="silos away at a time; below: f that may be away", ylim=(0, None))
        ax.set_title(title, fontsize="medium")
        ax.set_xticks(RATES, [f"{rate:.0%}\n{away(rate, M)}" for rate in RATES])
        ax.grid(alpha=0.3)
    axes[0].set(yscale="log", ylim=(150, 10_000))
    legend_of_all(figure)
    n, uniform = curves[0].n_seeds, pick(curves, "random play")[0].mean[0]
    size = f"M = {M}, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T), {n} seeds ± one standard error"
    figure.suptitle(f"{size}; random play {round(uniform, -2):,.0f}", fontsize="medium")
    late, lost = ("{:.2f} ± {:.2f}".format(*quotient(one.y[-2], one.y[0])) for one in regret[2:])
    remark(
        figure,
        f"If a fifth of the silos misses each synchronisation, secure aggregation has {late} times the regret that it "
        f"has with all there where what is missed comes later, and {lost} times where it is lost ({n} paired seeds). "
        "In (c) three curves lie on each other: those without noise and with secure aggregation, late or lost. Points "
        "are shifted sideways so that they can be seen.",
    )
    save("beyond_dropouts", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DropoutsSize, description=__doc__))
