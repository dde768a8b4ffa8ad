"""Draws what private federation costs on three real logs, whose silos are theirs: lectures, schools and films.

Rewards come from a model that was fitted to half of each log. The other half is replayed, each row once on average.
The unit is one visit, which is a row of the log, or a user with a bounded number of visits. Numbers were chosen on
other seeds. (d) The worth of the arms played in schools, by doubly robust estimates.
"""

from functools import partial
from typing import Any

from curves import along, final, mean_error, panels, pick, pm, the
from drawing import Axes, Curve, Panel, Picture, Size, main
from recipes import with_noise

import fedbandit_jax as fb

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
PLAIN = fb.algos.Federated(
    policy=fb.algos.Thompson(scale=0.3, shrinkage=12.0), schedule=fb.schedules.Geometric(2.0, first=1)
)


def recipes(name: str, env: Any, horizon: int, epsilon: float) -> dict[str, fb.algos.Federated]:
    """Returns the private recipes for this data set and budget."""
    delta, made = 1 / (10 * env.fit.replayed_rows), partial(with_noise, PLAIN, env, horizon, epsilon)
    made = partial(made, fb.privacy.Decaying(1.0), delta=delta)
    found = [made(trust, unit="visit") for trust in ("silo_local", "secagg")]
    if name in LET_IN:
        found.append(made("secagg", unit=fb.privacy.Users(LET_IN[name], silos=env.spec.silos)))
    return dict(zip(LOOKS, found))


def measure(options: Size) -> list[Curve]:
    curves, budgets = [], options.pick(BUDGETS[-1:], BUDGETS, BUDGETS)
    for name, title in list(TITLES.items())[: options.pick(2, 3, 3)]:
        env = fb.data.EXAMPLES[name]()
        rounds = env.fit.replayed_rows // env.spec.n_agents
        run = options.run(30, rounds, rounds, seeds=(2, 16, 25), fresh=2026, stride="log", throw=True)
        made = {epsilon: recipes(name, env, run["horizon"], epsilon) for epsilon in budgets}
        algos = {f"{label}, ε = {epsilon:g}": algo for epsilon, of in made.items() for label, algo in of.items()}
        algos[NONE] = PLAIN
        result = options.sweep(env, algos, title=f"{title}\n{env.fit}\n{env.encoding}", **run)
        chance = (env.fit.best - env.fit.uniform) * run["horizon"] * env.spec.n_agents
        panel = f"{title}: {env.spec.n_agents} silos, T = {run['horizon']:,}, random arms lose {chance:,.0f}"
        for label in (*made[budgets[0]], NONE):
            own = [result[NONE if label == NONE else f"{label}, ε = {epsilon:g}"] for epsilon in budgets]
            one = along(panel, label, budgets, own, LOOKS[label], partial(final, each=chance))
            note = "; ".join(f"{each.certificate.claim} {each.certificate.epsilon_exact or 0:.3g}" for each in own)
            curves.append(one if label == NONE else one.but(note=note))
        if name == "star":
            values = fb.off_policy(env, algos, horizon=run["horizon"], key=run["key"], seeds=run["seeds"])
            print(values, flush=True)
            curves.append(Curve(WORLD, "in the log", [0], [values.logged]))
            for label in values:
                model, (mean, low, high) = values[label].model, values[label].doubly_robust
                curves.append(Curve(WORLD, label, range(4), [model, low, mean, high]))
    return curves


def picture(curves: list[Curve]) -> Picture:
    logs, (logged, *worth) = [panel for panel in panels(curves) if panel != WORLD], pick(curves, WORLD)
    panel = partial(Panel, xlabel="ε", look=dict(markersize=6))
    panel = partial(panel, xscale="log", ylim=(0, 1.08), xticks=BUDGETS, level={"random arms": 1})
    shown = [panel(pick(curves, title), title) for title in logs]
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
    words, n = [], curves[0].n_seeds
    for panel in logs:
        secure, plain = (the(curves, panel, label) for label in (list(LOOKS)[1], NONE))
        added = ", ".join(pm(*mean_error(a - b)) for a, b in zip(secure.y, plain.y))
        words.append(f"{panel.partition(':')[0]} {added}")
    return Picture(
        [*shown, schools],
        "What privacy costs on three real logs",
        "Rewards in (a) to (c) come from models, not from the world. Thompson sampling, δ = 1 / (10 rows). Mean of "
        f"{n} seeds ± one standard error. All coloured lines are certified",
        "What secure aggregation of visits adds to the regret without noise, as a share of random arms' regret, from "
        f"the least ε to the largest: {'; '.join(words)} ({n} seeds, paired). Schools are too small to tell: even "
        "without noise two thirds of what random arms lose are lost.",
        shape=(2, 2),
        ylabel="regret over random arms'",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
