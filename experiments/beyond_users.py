"""Draws what users who return cost, all visits of one protected together: regret against visits, and who is let in.

Each user comes r times on average; all runs are certified at (1, 0.1) for one user. (a) r visits are let in, in any
batches (group privacy) or in batches that are apart, or one visit of every user. (b) Users come for r rounds in a row.
(c), (d) Greedy play where c of 16 visits are let in. Numbers were chosen on other seeds.
"""

from functools import partial
from typing import Any

import numpy as np
from curves import final, gathered, pick, quotient, the, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, level, main
from recipes import GREEDY, HALF, with_noise

import fedbandit_jax as fb

M, K, D, BUDGET = 100, 100, 10, fb.privacy.Budget(1.0, 0.1)
VISITS, REGULAR, LET_IN = (1, 4, 16, 64), 16, (1, 2, 4, 16)
P, Users = fb.privacy, fb.privacy.Users
LEFT_OUT = "contributions left out"
LOOKS = {
    "group privacy: optimism, batches of 25": "#0072B2 - o",
    "group privacy: greedy, batches grow by 1.5": "#D55E00 - s",
    "visits in batches far apart: greedy, batches of 25, banded noise": "#009E73 - D",
    "first visit only: greedy, batches double": "#882255 - ^",
}
FEW = "c visits, one to a batch: greedy, batches double"
ONCE = list(LOOKS)[3]  # c = 1
SESSIONS = list(LOOKS)[1:2] + list(LOOKS)[3:]  # recipes where users come for some rounds in a row


def few(unit: Any, env: Any, horizon: int) -> fb.algos.Federated:
    """Returns greedy play with few contributions of a user, in batches that double, and a longer wait."""
    doubling = GREEDY.replace(schedule=fb.schedules.Geometric(2.0))
    early = with_noise(doubling, env, horizon, 1.0, P.Decaying(1.0), delta=0.1, unit=unit)
    first: int = early.schedule.first  # pyright: ignore[reportAttributeAccessIssue]
    return early.replace(first=min(2 * first, horizon))


def recipes(r: int, env: Any, horizon: int) -> dict[str, fb.algos.Federated]:
    """Returns the recipes where r visits of one user are protected together."""
    apart = Users(r, 1, max(1, horizon // 25 // (2 * r))) if r > 1 else Users()
    sharp = fb.algos.UCB(regularizer="project", confidence="known_noise")
    once = fb.algos.private_fed_lin_ucb(P.Mechanism(BUDGET, "blt", unit=Users(r)), policy=sharp)
    grows = with_noise(GREEDY, env, horizon, 1.0, P.Decaying(1.5), delta=0.1, unit=Users(r))
    banded = P.Mechanism(BUDGET, P.BandMF(min(20, horizon // 25), apart), unit=apart, statistic=HALF)
    return dict(zip(LOOKS, [once, grows, GREEDY.replace(schedule=25, privacy=banded), few(Users(), env, horizon)]))


def measure(options: Size) -> list[Curve]:
    run, points = options.run(100, 2_000, 2_000, throw=True, store=options.store), []
    (n, *arms), horizon = options.shape(M, K, D), run["horizon"]
    new: Any = fb.envs.sphere(n, *arms, rewards="bernoulli")
    for r in options.pick((1, REGULAR), VISITS, VISITS):
        env = fb.envs.returning(new, round(horizon / r)) if r > 1 else new
        algos = recipes(r, env, horizon)
        more = {f"{c} let in": few(Users(c, 1), env, horizon) for c in LET_IN[1:] if r == REGULAR}
        result = options.sweep(env, algos | more, title=f"r = {r}", **run)
        places = [("r", label, r, result[label]) for label in algos]
        places += [("c", FEW, c, result[label]) for c, label in zip(LET_IN, [ONCE, *more]) if more]
        if r > 1:
            stay = fb.envs.returning(new, round(horizon / r), session=r)
            rows = options.sweep(stay, {name: algos[name] for name in SESSIONS}, title=f"r = {r} in a row", **run)
            places += [("r in a row", label, r, rows[label]) for label in SESSIONS]
        for panel, name, x, one in places:
            left = one.counts.get(LEFT_OUT, np.zeros_like(one.regret))[:, -1] / (n * horizon)
            claim = f"{one.certificate.claim} {one.certificate.epsilon_exact:.2f}"
            points += [
                (f"{what} by {panel}", name, x, y, claim) for what, y in (("regret", final(one)), ("left out", left))
            ]
    return [*gathered(points, {**LOOKS, FEW: LOOKS[ONCE]}), uniform(new, horizon, x=horizon)]


def picture(curves: list[Curve]) -> Picture:
    by_r, rows, chance = pick(curves, "regret by r"), pick(curves, "regret by r in a row"), the(curves, CHANCE)
    row = []
    for one in rows:  # at r = 1 both are the same
        alone = the(by_r, label=one.label)
        whole = one.but(x=np.append(1, one.x), y=np.vstack([alone.y[:1], one.y]))
        row.append(whole if alone.x[0] == 1 else one)
    log = partial(Panel, xscale="log", look=dict(markersize=6))
    visits = partial(log, xlabel="visits r of one user, all protected together", yscale="log", xticks=VISITS)
    visits = partial(visits, level=level(curves), ylabel="group regret at T")
    let_in = partial(log, xlabel=f"visits c of one user that are let in, of {REGULAR}", label="", xticks=LET_IN)
    shown = [
        visits(by_r, "users come again at random"),
        visits(row, "users come for r rounds in a row (r = 1: as in (a))"),
        let_in(pick(curves, "regret by c"), "r = 16 in (a): c visits let in, one to a batch"),
        let_in(pick(curves, "left out by c"), "the runs of (c): what is left out", yticks=(0.75, 0.8, 0.85, 0.9, 0.95)),
    ]
    shown[2].axes["ylabel"], shown[3].axes["ylabel"] = "group regret at T", "share of all visits that are left out"
    shown[1].also = lambda ax: ax.set(ylim=ax.figure.axes[0].get_ylim(), xlim=ax.figure.axes[0].get_xlim())
    optimism, *others = by_r
    best = [min((one for one in others if r in one.x), key=lambda one: one.at(r).mean()) for r in (1, REGULAR)]
    values = *quotient(best[1].at(REGULAR), best[0].at(1)), *quotient(optimism.at(REGULAR), optimism.y[0])
    names = [one.label.partition(":")[0] for one in best[::-1]]
    least = [min(rows, key=lambda one: one.mean[i]).label.partition(":")[0] for i in range(len(rows[0].x))]
    where = ", ".join(f"{name} at r = {r:g}" for r, name in zip(rows[0].x, least))
    where = f"{least[0]} at all r" if len(set(least)) == 1 else where
    text = "{:.2f} ± {:.2f} times the regret of one, each by its best recipe ({} and {}), and {:.1f} ± {:.1f} times"
    return Picture(
        shown,
        "What it costs to protect users who return",
        f"M = {M}, K = {K}, d = {D}, T = {chance.x[0]:,.0f}. All are certified at ε = 1 and δ = 0.1 for all visits of "
        f"one user. Mean of {curves[0].n_seeds} seeds ± one standard error. Names say first how visits are protected "
        f"together. At c = {REGULAR} only repeated visits within a batch are left out",
        f"{REGULAR} visits that are protected together cost {text.format(*values[:2], *names, *values[2:])} by "
        f"optimism with group privacy ({curves[0].n_seeds} seeds). Where users come for r rounds in a row, the least "
        f"regret of {len(rows)} recipes has: {where}.",
        shape=(2, 2),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
