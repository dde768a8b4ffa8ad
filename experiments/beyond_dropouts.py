"""Draws what silos that drop out cost: regret and bits against the share of silos that miss each synchronisation.

python experiments/beyond_dropouts.py [--smoke | --full]

Greedy play in batches that double, with noise on every batch ("input_perturbation"), for epsilon = 1 at delta = 1 / (10
M T), without privacy, with noise of every silo, or under secure aggregation with shares of noise of which any M - f
suffice. f is the number of silos that are away at a time, and three standard deviations more. What a silo could not
send comes with its next message, or is lost; or there is noise for f silos, and all are there. (a) Regret; where nobody
is away, the three curves of secure aggregation are one algorithm, which was run three times with other noise. (b)
Regret of secure aggregation alone, over the mean of these three runs. (c) Bits that silos send. Held-out seeds; all
private runs are certified.
"""

import dataclasses
import math
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
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
    "secure aggregation, what is missed comes later": "#009E73 -D",
    "secure aggregation, what is missed is lost": "#66C5AB -v",
}
LATER, THERE = list(LOOKS)[2], "secure aggregation with noise for f silos away, but all are there"


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
            resends="is lost" not in name,
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
        there = fb.simulate(still, algos[LATER], **run)
        for name in LOOKS:
            claim = claimed(result[name])
            for panel, values in (("regret", result[name].regret), ("bits", result[name].communication["bits"])):
                found.setdefault((panel, name), []).append((values[:, -1], claim))
        found.setdefault(("regret, all there", THERE), []).append((there.regret[:, -1], claimed(there)))
    curves = [
        Curve(
            panel,
            name,
            rates,
            [y for y, _ in of],
            LOOKS.get(name, "#00513B -^"),
            "; ".join(dict.fromkeys(claim for _, claim in of)),
        )
        for (panel, name), of in found.items()
    ]
    return [
        *curves,
        Curve("random play", "random play", [0], [random_play(still) * horizon], "#999999 -.", "not private"),
    ]


def main(options: DropoutsSize) -> None:
    curves = options.numbers("beyond_dropouts", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11, 5), layout="constrained")
    secure = [*pick(curves, "regret")[2:], *pick(curves, "regret, all there")]
    pooled = np.mean([one.y[0] for one in secure], axis=0)  # (S,): the same algorithm thrice, at f = 0
    panels = {
        "(a) regret": [*pick(curves, "regret")[:2], *secure],
        "(b) secure aggregation alone": [dataclasses.replace(one, x=one.x[1:], y=one.y[1:]) for one in secure],
        "(c) communication": pick(curves, "bits"),
    }
    for ax, (title, ones) in zip(axes, panels.items()):
        for i, one in enumerate(ones):
            colour, look = one.style.split()
            mean, error = (1e-6 * one.mean, 1e-6 * one.error) if title.startswith("(c)") else (one.mean, one.error)
            if title.startswith("(b)"):
                mean, error = np.transpose([quotient(y, pooled) for y in one.y])
            x = one.x + 0.005 * (i - (len(ones) - 1) / 2)  # so that what is equal is seen
            label = f"{one.label}: {one.note}"
            ax.errorbar(x, mean, error, fmt=look, color=colour, capsize=3, markersize=5, label=label)
            shown = ", ".join(f"{x:g}: {y:,.4g} ± {e:,.2g}" for x, y, e in zip(one.x, mean, error))
            print(f"{title}, {one.label}: {shown}; {one.note}")
        ax.set(xlabel="share of silos away", ylim=(0, None), xlim=(-0.02, 0.32))
        ax.set_title(title, fontsize="medium")
        ax.set_xticks(RATES, [f"{100 * rate:.0f} %" for rate in RATES])
        ax.grid(alpha=0.3)
    axes[0].set(yscale="log", ylim=(150, 100_000), ylabel="group regret at T")
    axes[1].set(ylim=(0.8, None), ylabel="regret over the mean of three runs at f = 0")
    axes[1].axhline(1, color="0.7", zorder=0)
    axes[2].set_ylabel("million bits that silos send")
    axes[2].text(0.03, 0.05, "three curves in one:\nall but noise of every silo", transform=axes[2].transAxes)
    n, uniform = curves[0].n_seeds, pick(curves, "random play")[0].mean[0]
    axes[0].axhline(uniform, color="#999999", linestyle="-.", label="random play")
    legend_of_all(figure, ncols=2)
    size = f"M = {M} silos, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T), {n} seeds ± one standard error"
    most = ", ".join(f"{away(rate, M)}" for rate in RATES)
    figure.suptitle(
        f"{size};\nf, the silos whose shares of noise may be missing: {most} from left to right", fontsize="medium"
    )
    late, lost, noise = ("{:.2f} ± {:.2f}".format(*quotient(one.y[-2], pooled)) for one in secure)
    own = "{:.2f} ± {:.2f}".format(*quotient(secure[0].y[-2], secure[0].y[0]))
    runs = ", ".join(f"{one.mean[0]:,.0f} ± {one.error[0]:,.0f}" for one in secure)
    remark(
        figure,
        f"If a fifth of the silos misses each synchronisation, secure aggregation has {late} times the regret that it "
        f"has with all there and f = 0 where what is missed comes later ({own} over its own run), {lost} times where "
        f"it is lost, and {noise} times if all are there under noise for f silos away ({n} paired seeds). At 0 % its "
        f"three curves are one algorithm, run three times with other noise: {runs}; (b) is over their mean. In (c) "
        "bits without noise are those of secure aggregation. Points are shifted sideways by at most 1 % of silos.",
    )
    save("beyond_dropouts", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DropoutsSize, description=__doc__))
