"""Draws what users who return cost, all visits of one protected together: regret against visits, and who is let in.

python experiments/beyond_users.py [--smoke | --full]

The paper's synthetic instance with 2,000 rounds. To each silo come so many users, again and again at random, that each
comes r times on average. All runs are certified at (1, 0.1) for one user, whose silo leaves out what is beyond bounds.
First: r visits are let in, maybe all in one batch (group privacy), by the recipes of docs/linear.md and of
docs/beyond.md; or one to a batch, in batches that are apart, with a release that knows it; or one visit of every user;
or all visits to the first batch that a user comes to, whose total is clipped. Second: the same where users come for r
rounds in a row. Third and fourth: greedy play where c of 16 visits are let in, one to a batch, and the share that is
left out. Numbers were chosen on other seeds.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from common import Size, save
from curves import Curve, pick

import fedbandit_jax as fb

M, K, D, BUDGET = 100, 100, 10, fb.privacy.Budget(1.0, 0.1)
VISITS, REGULAR, LET_IN = (1, 4, 16, 64), 16, (1, 2, 4, 16)
A, P, S, Users = fb.algos, fb.privacy, fb.schedules, fb.privacy.Users
LEFT_OUT = "contributions left out"
LOOKS = {
    "optimism in batches of 25, BLT: group privacy": "#0072B2 - o",
    "greedy, batches grow by 1.5: group privacy": "#D55E00 - s",
    "greedy in batches of 25: one visit a batch, apart, BandMF": "#009E73 - D",
    "greedy, batches double: one visit of each user": "#000000 - ^",
    "greedy, batches double: one total of each user": "#CC79A7 - v",
}
ONCE = list(LOOKS)[3]
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
    found = [once, grows, fixed, few(Users(), env, horizon)]
    if r > 1:
        found.append(few(Users(total=0.75 * r**0.5), env, horizon))
    return dict(zip(LOOKS, found))


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
        places += [("c", "greedy", c, result[label]) for c, label in zip(LET_IN, [ONCE, *more]) if more]
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
    return [
        Curve(
            panel,
            name,
            list(of),
            np.stack([values for values, _ in of.values()]),
            LOOKS.get(name, "#000000 - ^"),
            "; ".join(dict.fromkeys(claim for _, claim in of.values())),
        )
        for (panel, name), of in found.items()
    ]


def main(options: Size) -> None:
    curves = options.numbers("beyond_users", lambda: measure(options))
    figure, axes = plt.subplots(1, 4, figsize=(18.0, 5.6), layout="constrained")
    panels = ("regret by r", "regret by r in a row", "regret by c", "left out by c")
    for ax, panel in zip(axes, panels):
        for one in pick(curves, panel):
            colour, line, mark = one.style.split()
            ax.errorbar(one.x, one.mean, one.error, fmt=mark + line, color=colour, label=one.label, capsize=2)
            shown = ", ".join(f"{x:g}: {y:,.4g} ± {e:,.2g}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{panel}, {one.label}: {shown}; {one.note}")
        x = pick(curves, panel)[0].x
        ax.set(xscale="log", xlabel=f"visits of one user that are let in, c, of {REGULAR}")
        ax.set_xticks(x, [f"{value:g}" for value in x])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set(xlabel="visits of one user, r, all protected together", ylabel="group regret", yscale="log")
    axes[1].set(xlabel="visits of one user in a row, r, all protected together", yscale="log", ylim=axes[0].get_ylim())
    axes[2].set(ylabel="group regret", ylim=(0, None))
    axes[3].set(ylabel="share of all visits that are left out", ylim=(0, 1))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False)
    seeds = curves[0].n_seeds
    figure.suptitle(f"M = {M}, K = {K}, d = {D}, T = 2,000, (1, 0.1) for one user, {seeds} seeds ± one standard error")
    save("beyond_users", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
