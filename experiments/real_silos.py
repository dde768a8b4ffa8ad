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
import tyro
from common import Size, save
from curves import Curve, pick

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
    NONE: "#000000 --",
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
        model, (mean, low, high) = values[label].model, values[label].robust
        found.append(Curve(WORLD, label, range(4), [model, low, mean, high]))
    return found


def main(options: Size) -> None:
    curves = options.numbers("real_silos", lambda: measure(options))
    figure, axes = plt.subplots(1, 4, figsize=(22.0, 5.6), layout="constrained", width_ratios=[1, 1, 1, 1.1])
    panels = [panel for panel in dict.fromkeys(one.panel for one in curves) if panel != WORLD]
    for ax, panel in zip(axes, panels):
        for one in pick(curves, panel):
            colour, line, *mark = one.style.split()
            ax.errorbar(
                one.x, one.mean, one.error, fmt="".join([*mark, line]), color=colour, label=one.label, capsize=2
            )
            shown = ", ".join(f"{x:g}: {y:.3f} ± {e:.3f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"{panel}, {one.label}: {shown}; {one.note}")
        ax.axhline(1, color="#999999", linestyle=":", label="random arms")
        ax.set(xscale="log", xlabel="ε", title=panel, ylim=(0, None))
        ax.set_xticks(BUDGETS, [f"{epsilon:g}" for epsilon in BUDGETS])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("regret, as a share of that of random arms")
    axes[2].legend(frameon=False, fontsize="small", loc="upper right", bbox_to_anchor=(1.0, 0.93))
    logged, *shown = pick(curves, WORLD)
    for place, one in enumerate(reversed(shown)):
        model, low, mean, high = one.mean
        axes[3].plot([low, high], [place, place], color="#0072B2")
        axes[3].plot(mean, place, "o", color="#0072B2", label="by the log, doubly robust" if not place else None)
        axes[3].plot(model, place, "x", color="#D55E00", label="by the model" if not place else None)
        print(f"{WORLD}, {one.label}: by the model {model:.4f}, by the log {mean:.4f} ({low:.4f} to {high:.4f})")
    axes[3].axvline(float(logged.mean[0]), color="#999999", linestyle=":", label="pupils in the log")
    axes[3].set_yticks(range(len(shown)), [one.label for one in reversed(shown)], fontsize="small")
    axes[3].set(xlabel="mean score of the arms played", title=WORLD, ylim=(-0.5, len(shown) + 0.8))
    axes[3].legend(frameon=False, fontsize="small", loc="upper right")
    private = [one.note.split("; ") for one in curves if one.panel in panels and one.label != NONE]
    certified = all(claim.startswith("certified") for notes in private for claim in notes)
    figure.suptitle(
        f"Rewards are those of models, not of the world. Thompson sampling, δ = 1 / (10 rows), {curves[0].n_seeds} "
        f"seeds ± one standard error; {'all' if certified else 'not all'} coloured lines are certified",
        fontsize="medium",
    )
    save("real_silos", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
