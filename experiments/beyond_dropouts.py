"""Draws what silos that drop out cost: regret and bits against the share of silos that miss each synchronisation.

Greedy play in batches that double, with noise on every batch. Under secure aggregation any M - f shares of noise
suffice; f is the mean number of silos away, and three standard deviations more. An unsent sum comes with the next
message, or is lost. In a control there is noise for f silos, and all are there. Held-out seeds.
"""

import math
from functools import partial

import numpy as np
from curves import claimed, final, gathered, pick, ratio, the, uniform
from drawing import Curve, Panel, Picture, Size, level, main
from recipes import GREEDY, with_noise

import fedbandit_jax as fb

M, K, D, T = 100, 20, 10, 2_000
RATES = (0.0, 0.05, 0.1, 0.2, 0.3)
THERE = "secure aggregation with noise for f silos away, but all are there"
LATER = "secure aggregation, what is missed comes later"
LOST = "secure aggregation, what is missed is lost"
LOOKS = {"no noise": "#000000 -o", "noise of every silo": "#D55E00 -s", LATER: "#009E73 -D", LOST: "#66C5AB -v"}


def away(rate: float, silos: int) -> int:
    """Returns f: more silos are away at a time in one synchronisation of a thousand."""
    return min(silos - 1, math.ceil(silos * rate + 3 * math.sqrt(silos * rate * (1 - rate))))


def measure(options: Size) -> list[Curve]:
    run = options.ends(60, T, 2 * T, seeds=(2, 16, 16), fresh=1000)
    still = fb.envs.sphere(*options.pick((8, 4, 3), (M, K, D), (4 * M, K, D)), rewards="bernoulli")
    points, early = [], GREEDY.replace(schedule=fb.schedules.Geometric(2.0, first=5))
    for rate in options.pick(RATES[::3], RATES, RATES):
        env = fb.envs.dropout(still, rate)
        noisy = partial(with_noise, early, env, run["horizon"], 1.0, "input_perturbation")
        safe = partial(noisy, trust="secagg", dropouts=away(rate, env.spec.n_agents))
        algos = dict(zip(LOOKS, (early, noisy(resends=True), safe(resends=True), safe(resends=False))))
        result = options.sweep(env, algos, title=f"{rate:.0%} away", **run)
        there = fb.simulate(still, algos[LATER], **run)
        for name, one in [(name, result[name]) for name in LOOKS]:
            points.append(("regret", name, rate, final(one), claimed(one)))
            points.append(("bits", name, rate, one.communication["bits"][:, -1], claimed(one)))
        points.append(("regret, all there", THERE, rate, final(there), claimed(there)))
    return [*gathered(points, {**LOOKS, THERE: "#00513B -^"}), uniform(still, run["horizon"])]


def picture(curves: list[Curve]) -> Picture:
    plain, secure = pick(curves, "regret")[:2], [*pick(curves, "regret")[2:], the(curves, "regret, all there")]
    pooled = np.mean([one.y[0] for one in secure], axis=0)  # (S,): the same algorithm thrice, at f = 0
    bits = [one.per(1e6) for one in pick(curves, "bits")]
    over = [one.but(x=one.x[1:], y=one.y[1:]).over(pooled) for one in secure]
    panel = partial(Panel, xlabel="share of silos away", spread=0.005, label="{label}: {note}", look=dict(capsize=3))
    panel = partial(panel, xlim=(-0.02, 0.32), xticks={rate: f"{100 * rate:.0f} %" for rate in RATES if rate != 0.05})
    regret = panel([*plain, *secure], "regret", ylabel="group regret at T", yscale="log", ylim=(150, 100_000))
    regret.level = level(curves)
    alone = panel(over, "secure aggregation alone", ylabel="regret over that at f = 0", ylim=(0.8, None))
    alone.also = lambda ax: ax.axhline(1, color="0.7", zorder=0)
    sent = panel(bits, "communication", ylabel="million bits that silos send", ylim=(0, None))
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
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
