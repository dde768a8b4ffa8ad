"""Draws what private federation costs on three real logs, whose silos are theirs: lectures, schools and films.

python experiments/real_silos.py [--smoke | --full] [--redraw]

Ratings of lectures by students of 14 departments (`fb.data.insteval`), pupils of 78 schools whose classes were drawn
(`fb.data.star`), and ratings of films by 671 people (`fb.data.films`). Rewards are those of a model that was fitted to
half of each log; the other half is replayed, each row once on average. One recipe for all: Thompson sampling whose
ridge is 12 standard deviations of the noise, batches that double, a first release by `fb.algos.Federated.patient`, the
same at every epsilon, delta = 1 / (10 rows). Protected is one visit, a row of the log, or a user with all of hers, of
which so many are let in. Numbers were chosen on other seeds.

Fourth: schools drew classes at random, so that the log says what arms are worth in the world: the mean score of the
arms that were played, by the model, and by doubly robust estimates from the log, with 95 % intervals.
"""

from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, mean_error, pick
from drawing import legend_of_all, remark, save
from options import Size

import fedbandit_jax as fb

A, P, S = fb.algos, fb.privacy, fb.schedules
BUDGETS = (0.5, 2.0, 8.0)
TITLES = {"insteval": "lectures", "star": "schools", "films": "films"}
LET_IN = {"insteval": 1, "films": 16}  # visits of one user
NONE, WORLD = "no noise, not private", "schools: in the world"
LOOKS = {
    "silos trust nobody, one visit": "#D55E00 - o",
    "secure aggregation, one visit": "#0072B2 - s",
    "secure aggregation, a user with all visits": "#CC79A7 - D",
    NONE: "#000000 -",
}


def recipe(
    env: Any, horizon: int, epsilon: float | None, trust: str = "secagg", unit: Any = "visit"
) -> fb.algos.Federated:
    """Returns the recipe for a budget, or without privacy."""
    policy, schedule = A.Thompson(scale=0.3, shrinkage=12.0), S.Geometric(2.0, first=1)
    if epsilon is None:
        return A.Federated(policy=policy, schedule=schedule)
    budget = P.Budget(epsilon, 1 / (10 * env.fit.replayed_rows))
    statistic = P.Linear(centred=True, gram_scale=0.5)
    privacy = P.Mechanism(budget, P.Decaying(1.0), trust, statistic=statistic, unit=unit)
    return A.Federated(policy=policy, schedule=schedule, privacy=privacy).patient(env.spec, horizon)


def recipes(name: str, env: Any, horizon: int, epsilon: float) -> dict[str, fb.algos.Federated]:
    """Returns the private recipes for this data set and budget."""
    silos, secure, whole, _ = LOOKS
    found = {silos: recipe(env, horizon, epsilon, "silo_local"), secure: recipe(env, horizon, epsilon)}
    if name in LET_IN:
        unit = P.Users(LET_IN[name], silos=env.spec.silos)
        found[whole] = recipe(env, horizon, epsilon, unit=unit)
    return found


def measure(options: Size) -> list[Curve]:
    """Returns final regret as a share of what random arms lose, against epsilon, and what arms are worth in schools."""
    curves, budgets = [], options.pick(BUDGETS[-1:], BUDGETS, BUDGETS)
    for name, title in TITLES.items():
        if options.smoke and name == "films":
            continue
        env = fb.data.EXAMPLES[name]()
        rounds = env.fit.replayed_rows // env.spec.n_agents
        run: Any = {**options.run(30, rounds, rounds), "seeds": options.pick(2, 16, 25), "stride": "log", "throw": True}
        run["key"] = jax.random.key(options.seed + 2026)  # not of the seeds on which numbers were chosen
        horizon = run["horizon"]
        made = {epsilon: recipes(name, env, horizon, epsilon) for epsilon in budgets}
        asked = {f"{label}, ε = {epsilon:g}": algo for epsilon, of in made.items() for label, algo in of.items()}
        result = fb.sweep(env, {**asked, NONE: recipe(env, horizon, None)}, **run)
        print(f"\n{title}\n{env.fit}\n{env.encoding}\n{result.summary()}", flush=True)
        chance = (env.fit.best - env.fit.uniform) * horizon * env.spec.n_agents
        panel = f"{title}: {env.spec.n_agents} silos, T = {horizon:,}, random arms lose {chance:,.0f}"
        for label in made[budgets[0]]:
            own = [result[f"{label}, ε = {epsilon:g}"] for epsilon in budgets]
            note = "; ".join(f"{one.certificate.claim} {one.certificate.epsilon_exact:.3g}" for one in own)
            values = [one.regret[:, -1] / chance for one in own]
            curves.append(Curve(panel, label, budgets, values, LOOKS[label], note))
        flat = [result[NONE].regret[:, -1] / chance] * len(budgets)
        curves.append(Curve(panel, NONE, budgets, flat, LOOKS[NONE], "not private"))
        if name == "star":
            curves += world(env, {**asked, NONE: recipe(env, horizon, None)}, run)
    return curves


def world(env: Any, algos: dict[str, fb.algos.Federated], run: dict[str, Any]) -> list[Curve]:
    """Returns the mean score of arms played by the model (x = 0), and its interval and centre by the log (1, 2, 3)."""
    values = fb.off_policy(env, algos, horizon=run["horizon"], key=run["key"], seeds=run["seeds"])
    print(values, flush=True)
    found = [Curve(WORLD, "in the log", [0], [values.logged])]
    for label in values:
        model, (mean, low, high) = values[label].model, values[label].doubly_robust
        found.append(Curve(WORLD, label, range(4), [model, low, mean, high]))
    return found


def main(options: Size) -> None:
    curves = options.numbers("real_silos", lambda: measure(options))
    figure, grid = plt.subplots(2, 2, figsize=(10.5, 8.6), layout="constrained")
    axes = list(grid.flat)
    panels = [panel for panel in dict.fromkeys(one.panel for one in curves) if panel != WORLD]
    for ax, letter, panel in zip(axes, "abc", panels):
        ax.axhline(1, color="#999999", linestyle=":", label="random arms")
        for one in pick(curves, panel):
            colour, line, *mark = one.style.split()
            look: Any = dict(fmt="".join([*mark, line]), color=colour, label=one.label, capsize=2)
            ax.errorbar(one.x, one.mean, one.error, **look)
            shown = ", ".join(f"{x:g}: {y:.3f} ± {e:.3f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{panel}, {one.label}: {shown}; {one.note}")
        ax.set(xscale="log", xlabel="ε", ylim=(0, 1.08), ylabel="regret, as a share of that of random arms")
        ax.set_title(f"({letter}) {panel}", fontsize="medium")
        ax.set_xticks(BUDGETS, [f"{epsilon:g}" for epsilon in BUDGETS])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    logged, *shown = pick(curves, WORLD)
    axes[3].axvline(float(logged.mean[0]), color="#999999", linestyle="--", label="mean score in the log of schools")
    for name, mark in (("by the log, doubly robust, with its 95 % interval", "o-"), ("by the model", "x")):
        axes[3].plot([], [], mark, color="#777777", label=name)
    for place, one in enumerate(reversed(shown)):
        model, low, mean, high = one.mean
        colour = LOOKS[one.label.partition(", ε")[0]].split()[0]
        axes[3].plot([low, high], [place, place], color=colour)
        axes[3].plot(mean, place, "o", color=colour)
        axes[3].plot(model, place, "x", color=colour)
        print(f"{WORLD}, {one.label}: by the model {model:.4f}, by the log {mean:.4f} ({low:.4f} to {high:.4f})")
    axes[3].set_yticks(range(len(shown)), [one.label.replace(", one visit, ", "\n") for one in reversed(shown)])
    axes[3].tick_params(axis="y", labelsize="small")
    axes[3].set(xlabel="mean score of the arms played", ylim=(-0.5, len(shown) - 0.5))
    axes[3].set_title("(d) schools: what their log says of the arms played", fontsize="medium")
    axes[3].grid(alpha=0.3, axis="x")
    axes[3].locator_params(axis="x", nbins=5)
    legend_of_all(figure)
    private = [one.note.split("; ") for one in curves if one.panel in panels and one.label != NONE]
    certified = all(claim.startswith("certified") for notes in private for claim in notes)
    size = f"δ = 1 / (10 rows), {curves[0].n_seeds} seeds ± one standard error"
    figure.suptitle(
        f"Rewards in (a) to (c) are those of models, not of the world. Thompson sampling, {size};\n"
        f"{'all' if certified else 'not all'} coloured lines are certified",
        fontsize="medium",
    )
    words = []
    for panel in panels:
        (private,), (plain,) = (pick(curves, panel, label) for label in (list(LOOKS)[1], NONE))
        costs = [mean_error(a - b) for a, b in zip(private.y, plain.y)]
        shown = ", ".join(f"{np.round(value, 2) + 0.0:.2f} ± {error:.2f}" for value, error in costs)
        words.append(f"{panel.partition(':')[0]} {shown}")
    remark(
        figure,
        "What secure aggregation of visits adds to the regret without noise, as a share of that of random arms, from "
        f"the least ε to the largest: {'; '.join(words)} ({curves[0].n_seeds} seeds, paired). Schools are too small to "
        "tell: there even without noise two thirds of what random arms lose are lost.",
    )
    save("real_silos", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
