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

import math
from typing import Any

import numpy as np
from curves import Curve, claimed, final, gathered, pick, random_play, ratio, the
from drawing import CHANCE, Panel, Picture, main
from options import Size

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
A, P = fb.algos, fb.privacy
RATES = (0.0, 0.05, 0.1, 0.2, 0.3)
THERE = "secure aggregation with noise for f silos away, but all are there"
LATER = "secure aggregation, what is missed comes later"
LOOKS = {
    "no noise": "#000000 -o",
    "noise of every silo": "#D55E00 -s",
    LATER: "#009E73 -D",
    "secure aggregation, what is missed is lost": "#66C5AB -v",
}


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


def measure(options: Size) -> list[Curve]:
    """Returns regret and bits by the share of silos that are away, and regret with noise for f while all are there."""
    run = options.ends(60, T, 2 * T, seeds=(2, 16, 16), fresh=1000)
    still = fb.envs.sphere(*options.pick((8, 4, 3), (M, K, D), (4 * M, K, D)), rewards="bernoulli")
    points: list[tuple[str, str, float, Any, str]] = []
    for rate in options.pick(RATES[::3], RATES, RATES):
        env = fb.envs.dropout(still, rate)
        algos = {name: recipe(name, away(rate, env.spec.n_agents), env.spec, run["horizon"]) for name in LOOKS}
        result = options.sweep(env, algos, title=f"{rate:.0%} away", **run)
        there = fb.simulate(still, algos[LATER], **run)
        for name in LOOKS:
            points.append(("regret", name, rate, final(result[name]), claimed(result[name])))
            points.append(("bits", name, rate, result[name].communication["bits"][:, -1], claimed(result[name])))
        points.append(("regret, all there", THERE, rate, final(there), claimed(there)))
    uniform = random_play(still) * run["horizon"]
    curves = gathered(points, {**LOOKS, THERE: "#00513B -^"})
    return [*curves, Curve(CHANCE, CHANCE, [0], [uniform], "#999999 -.", "not private")]


def picture(curves: list[Curve]) -> Picture:
    plain, secure = pick(curves, "regret")[:2], [*pick(curves, "regret")[2:], the(curves, "regret, all there")]
    pooled = np.mean([one.y[0] for one in secure], axis=0)  # (S,): the same algorithm thrice, at f = 0
    bits = [one.per(1e6) for one in pick(curves, "bits")]
    over = [one.but(x=one.x[1:], y=one.y[1:]).over(pooled) for one in secure]
    shown: Any = dict(spread=0.005, label="{label}: {note}", look=dict(capsize=3), xlim=(-0.02, 0.32))
    shown["xticks"], away_ = {rate: f"{100 * rate:.0f} %" for rate in RATES if rate != 0.05}, "share of silos away"
    level = {CHANCE: the(curves, CHANCE).mean[0]}
    regret = Panel([*plain, *secure], "regret", away_, "group regret at T", yscale="log", level=level, **shown)
    regret.axes["ylim"] = (150, 100_000)
    words = "regret over that at f = 0"
    alone = Panel(over, "secure aggregation alone", away_, words, ylim=(0.8, None), **shown)
    alone.also = lambda ax: ax.axhline(1, color="0.7", zorder=0)
    sent = Panel(bits, "communication", away_, "million bits that silos send", ylim=(0, None), **shown)
    n, most = curves[0].n_seeds, ", ".join(f"{away(rate, M)}" for rate in RATES)
    late, lost, noise = (ratio(one.y[-2], pooled) for one in secure)
    own, runs = ratio(secure[0].y[-2], secure[0].y[0]), ", ".join(one.said(0) for one in secure)
    return Picture(
        [regret, alone, sent],
        "Secure aggregation survives silos that drop out",
        f"M = {M} silos, K = {K}, d = {D}, T = {T:,}, ε = 1, δ = 1/(10 M T). Mean of {n} seeds ± one standard error. "
        f"f, the silos whose shares of noise may be missing, is {most} from left to right. In (c) all except noise of "
        "every silo are one curve",
        "If a fifth of the silos misses each synchronisation, regret of secure aggregation is over that with all there "
        f"and f = 0: {late} if what is missed comes later ({own} over its own run), {lost} if it is lost, and {noise} "
        f"if all are there under noise for f silos away ({n} paired seeds). At 0 % its three curves are one algorithm, "
        f"run three times with other noise: {runs}. (b) is over their mean.",
        height=3.4,
        ncols=2,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
