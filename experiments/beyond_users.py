"""Draws what users who return cost, all visits of one protected together: regret against visits, and who is let in.

python experiments/beyond_users.py [--smoke | --full]

The paper's synthetic instance with 2,000 rounds. To each silo come so many users, again and again at random, that each
comes r times on average. All runs are certified at (1, 0.1) for one user, whose silo leaves out what is beyond bounds.
First: r visits are let in, maybe all in one batch (group privacy), by the recipes of docs/linear.md and of
docs/beyond.md; or one to a batch, in batches that are apart, with a release that knows it; or one visit of every user.
Second: the same where users come for r rounds in a row. Third and fourth: greedy play where c of 16 visits are let in,
one to a batch, and the share that is left out. Numbers were chosen on other seeds.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, pick, quotient, random_play
from drawing import legend_of_all, remark, save
from options import Size

import fedbandit_jax as fb

M, K, D, BUDGET = 100, 100, 10, fb.privacy.Budget(1.0, 0.1)
VISITS, REGULAR, LET_IN = (1, 4, 16, 64), 16, (1, 2, 4, 16)
A, P, S, Users = fb.algos, fb.privacy, fb.schedules, fb.privacy.Users
LEFT_OUT, CHANCE = "contributions left out", "random play"
LOOKS = {
    "group privacy: optimism, batches of 25": "#0072B2 - o",
    "group privacy: greedy, batches grow by 1.5": "#D55E00 - s",
    "visits in batches far apart: greedy, batches of 25, banded noise": "#009E73 - D",
    "first visit only: greedy, batches double": "#882255 - ^",
}
FEW = "c visits, one to a batch: greedy, batches double"
ONCE = list(LOOKS)[3]  # c = 1
TITLES = {
    "regret by r": "(a) users come again at random",
    "regret by r in a row": "(b) users come for r rounds in a row (r = 1: as in (a))",
    "regret by c": "(c) r = 16 in (a): c visits let in, one to a batch",
    "left out by c": "(d) the runs of (c): what is left out",
}
SESSIONS = list(LOOKS)[1:2] + list(LOOKS)[3:]  # recipes where users come for some rounds in a row


def greedy(unit: Any, release: Any, schedule: Any) -> fb.algos.Federated:
    privacy = P.Mechanism(BUDGET, release, unit=unit, statistic=P.Linear(centred=True, gram_scale=0.5))
    return A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy)


def few(unit: Any, env: Any, horizon: int) -> fb.algos.Federated:
    """Returns greedy play with few contributions of a user, in batches that double, and a longer wait."""
    early = greedy(unit, P.Decaying(1.0), S.Geometric(2.0, first=1)).patient(env.spec, horizon)
    first: int = early.schedule.first  # pyright: ignore[reportAttributeAccessIssue]
    return early.replace(first=min(2 * first, horizon))


def recipes(r: int, env: Any, horizon: int) -> dict[str, fb.algos.Federated]:
    """Returns the recipes where r visits of one user are protected together."""
    apart = Users(r, 1, max(1, horizon // 25 // (2 * r))) if r > 1 else Users()
    sharp = A.UCB(regularizer="project", confidence="known_noise")
    blt = P.Mechanism(BUDGET, "blt", unit=Users(r))
    grows = greedy(Users(r), P.Decaying(1.5), S.Geometric(1.5, first=1)).patient(env.spec, horizon)
    once = A.private_fed_lin_ucb(blt, policy=sharp)
    fixed = greedy(apart, P.BandMF(min(20, horizon // 25), apart), S.Every(25))
    return dict(zip(LOOKS, [once, grows, fixed, few(Users(), env, horizon)]))


def measure(options: Size) -> list[Curve]:
    """Returns final regrets and shares left out, against r, and against the visits that are let in."""
    run, found = {**options.run(100, 2_000, 2_000), "throw": True, "store": options.store}, {}
    (n, *arms), horizon = options.shape(M, K, D), run["horizon"]
    for r in options.pick((1, REGULAR), VISITS, VISITS):
        new: Any = fb.envs.sphere(n, *arms, rewards="bernoulli")
        env = fb.envs.returning(new, round(horizon / r)) if r > 1 else new
        algos = recipes(r, env, horizon)
        more = {f"{c} let in": few(Users(c, 1), env, horizon) for c in LET_IN[1:] if r == REGULAR}
        result = fb.sweep(env, algos | more, **run)
        print(f"r = {r}\n{result.summary()}", flush=True)
        places = [("r", label, r, result[label]) for label in algos]
        places += [("c", FEW, c, result[label]) for c, label in zip(LET_IN, [ONCE, *more]) if more]
        if r > 1:
            stay = fb.envs.returning(new, round(horizon / r), session=r)
            rows = fb.sweep(stay, {name: algos[name] for name in SESSIONS}, **run)
            print(f"r = {r} in a row\n{rows.summary()}", flush=True)
            places += [("r in a row", label, r, rows[label]) for label in SESSIONS]
        for panel, name, x, one in places:
            left = one.counts.get(LEFT_OUT, np.zeros_like(one.regret))[:, -1] / (n * horizon)
            claim = f"{one.certificate.claim} {one.certificate.epsilon_exact:.2f}"
            for kind, values in (("regret", one.regret[:, -1]), ("left out", left)):
                found.setdefault((f"{kind} by {panel}", name), {})[x] = values, claim
    chance = horizon * random_play(fb.envs.sphere(n, *arms, rewards="bernoulli"))
    kept = [
        Curve(
            panel,
            name,
            list(of),
            np.stack([values for values, _ in of.values()]),
            LOOKS.get(name, LOOKS[ONCE]),
            "; ".join(dict.fromkeys(claim for _, claim in of.values())),
        )
        for (panel, name), of in found.items()
    ]
    return [*kept, Curve(CHANCE, CHANCE, [horizon], [chance])]


def main(options: Size) -> None:
    curves = options.numbers("beyond_users", lambda: measure(options))
    figure, grid = plt.subplots(2, 2, figsize=(10.5, 8.4), layout="constrained")
    axes, (chance,), seeds = list(grid.flat), pick(curves, CHANCE), curves[0].n_seeds
    for ax in axes[:2]:
        ax.axhline(chance.mean[0], color="#999999", linestyle="-.", label=CHANCE)
    for ax, panel in zip(axes, TITLES):
        for one in pick(curves, panel):
            colour, line, mark = one.style.split()
            x, mean, error = one.x, one.mean, one.error
            alone = pick(curves, "regret by r", one.label) if panel == "regret by r in a row" else []
            if alone and alone[0].x[0] == 1:  # who comes once comes for one round in a row
                x, mean, error = (
                    np.append(a[0], b) for a, b in zip((alone[0].x, alone[0].mean, alone[0].error), (x, mean, error))
                )
            ax.errorbar(
                x, mean, error, fmt=mark + line, color=colour, label="_" * (one.label == FEW) + one.label, capsize=2
            )
            shown = ", ".join(f"{x:g}: {y:,.4g} ± {e:,.2g}" for x, y, e in zip(x, mean, error))
            print(f"{panel}, {one.label}: {shown}; {one.note}")
        x = pick(curves, panel)[0].x
        ax.set(xscale="log", xlabel=f"visits c of one user that are let in, of {REGULAR}", ylabel="group regret at T")
        ax.set_title(TITLES[panel], fontsize="medium")
        ax.set_xticks(x, [f"{value:g}" for value in x])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    for ax in axes[:2]:
        ax.set_xticks(VISITS, [f"{value:g}" for value in VISITS])
        ax.set(xlabel="visits r of one user, all protected together", yscale="log")
    axes[1].set(ylim=axes[0].get_ylim(), xlim=axes[0].get_xlim())
    axes[3].set(ylabel="share of all visits that are left out", yticks=(0.75, 0.8, 0.85, 0.9, 0.95))
    words = f"at c = {REGULAR} only repeated visits\nwithin a batch are left out"
    axes[3].text(0.97, 0.3, words, ha="right", transform=axes[3].transAxes)
    legend_of_all(figure, ncols=2)
    size = f"M = {M}, K = {K}, d = {D}, T = {chance.x[0]:,.0f}"
    figure.suptitle(
        f"Users who return: {size}, all certified at ε = 1, δ = 0.1 for all visits of one user,\n{seeds} seeds ± one "
        "standard error; before the colon: how visits are protected together",
        fontsize="medium",
    )
    optimism, *others = pick(curves, "regret by r")
    least = [
        min(others, key=lambda one: one.mean[list(one.x).index(r)] if r in one.x else np.inf) for r in (1, REGULAR)
    ]
    one, many = (best.y[list(best.x).index(r)] for best, r in zip(least, (1, REGULAR)))
    values = [*quotient(many, one), *quotient(optimism.y[list(optimism.x).index(REGULAR)], optimism.y[0])]
    rows = pick(curves, "regret by r in a row")
    best = [min(rows, key=lambda one: one.mean[i]).label.partition(":")[0] for i in range(len(rows[0].x))]
    places = [f"{name} at r = {r:g}" for r, name in zip(rows[0].x, best)]
    row = f"{best[0]} at all r" if len(set(best)) == 1 else ", ".join(places)
    text = "{:.2f} ± {:.2f} times the regret of one, each by its best recipe ({} and {}), and {:.1f} ± {:.1f} times"
    names = [best.label.partition(":")[0] for best in least[::-1]]
    remark(
        figure,
        f"{REGULAR} visits that are protected together cost {text.format(*values[:2], *names, *values[2:])} by "
        f"optimism with group privacy ({seeds} seeds). Where users come for r rounds in a row, the least regret of "
        f"{len(rows)} recipes has: {row}. Nothing here is without privacy.",
    )
    save("beyond_users", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
