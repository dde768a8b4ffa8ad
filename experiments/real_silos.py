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

from curves import Curve, final, mean_error, panels, pick, pm, the
from drawing import Panel, Picture, main
from matplotlib.axes import Axes
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
        run = options.run(30, rounds, rounds, seeds=(2, 16, 25), fresh=2026, stride="log", throw=True)
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
            values = [final(one, each=chance) for one in own]
            curves.append(Curve(panel, label, budgets, values, LOOKS[label], note))
        flat = [final(result[NONE], each=chance)] * len(budgets)
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


def picture(curves: list[Curve]) -> Picture:
    logs, (logged, *worth) = [panel for panel in panels(curves) if panel != WORLD], pick(curves, WORLD)
    axes: dict[str, Any] = dict(xscale="log", ylim=(0, 1.08), xticks=BUDGETS, level={"random arms": 1})
    words, shown = ("ε", "regret, as a share of that of random arms"), []
    for panel in logs:
        shown.append(Panel(pick(curves, panel), panel, *words, look=dict(markersize=6), **axes))
    names = [one.label.replace(", one visit, ", "\n") for one in reversed(worth)]

    def of_schools(ax: Axes) -> None:
        ax.axvline(logged.mean[0], color="#999999", linestyle="--", label="mean score in the log of schools")
        for name, mark in (("by the log, doubly robust, with its 95 % interval", "o-"), ("by the model", "x")):
            ax.plot([], [], mark, color="#777777", label=name)
        for place, one in enumerate(reversed(worth)):
            model, low, mean, high = one.mean
            colour = LOOKS[one.label.partition(", ε")[0]].split()[0]
            ax.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", markersize=4, color=colour)
            ax.plot(model, place, "x", color=colour)
        ax.set_yticks(range(len(worth)), names, fontsize="small")
        ax.locator_params(axis="x", nbins=5)

    schools = Panel([], "schools: what their log says of the arms played", "mean score of the arms played", kind="rows")
    schools.also, schools.axes["ylim"] = of_schools, (-0.5, len(worth) - 0.5)
    words = []
    for panel in logs:
        secure, plain = (the(curves, panel, label) for label in (list(LOOKS)[1], NONE))
        added = ", ".join(pm(*mean_error(a - b)) for a, b in zip(secure.y, plain.y))
        words.append(f"{panel.partition(':')[0]} {added}")
    n = curves[0].n_seeds
    return Picture(
        [*shown, schools],
        "What privacy costs on three real logs",
        "Rewards in (a) to (c) are those of models, not of the world. Thompson sampling, δ = 1 / (10 rows). Mean of "
        f"{n} seeds ± one standard error. All coloured lines are certified",
        "What secure aggregation of visits adds to the regret without noise, as a share of random arms' regret, from "
        f"the least ε to the largest: {'; '.join(words)} ({n} seeds, paired). Schools are too small to tell: even "
        "without noise two thirds of what random arms lose are lost.",
        shape=(2, 2),
        height=6.1,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
