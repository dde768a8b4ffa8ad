"""Compares what `fb.plan` recommends with all of its candidates, under seeds that it has not seen.

Eleven instances of different kinds are planned. Every candidate that met the demands, whether it was screened out or
not, is then run for the whole horizon under 16 other seeds. Draws no picture: an instance is kept in planning.json when
it is done. --redraw prints the rows of that file again.
"""

import dataclasses
import datetime
import json
from typing import Any

import jax
import numpy as np
import tyro
from curves import final, mean_error
from options import Size
from recipes import instance, table

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(2.0, 1e-5)


@dataclasses.dataclass(frozen=True)
class PlanningSize(Size):
    """Compare plans with all of their candidates.

    Args:
        only: names of the instances; all by default.
    """

    only: tuple[str, ...] = ()


def fixed(n_arms: int, seed: int) -> fb.Environment:
    """Returns the first arms of an instance of 20."""
    arms, theta = instance(20, 6, seed)
    return table(40, arms[:n_arms], theta)


def instances() -> dict[str, tuple[fb.Environment, int, dict[str, Any]]]:
    """Returns environments, horizons and other arguments of `fb.plan` by their names."""
    digits = fb.data.classification("digits", components=2).arguments()
    fresh = fb.envs.sphere(40, 20, 6, rewards="bernoulli")
    stays = {
        "fresh arms": fresh,
        "20 fixed arms": fixed(20, 301),
        "3 fixed arms": fixed(3, 302),
        "a gap": fb.envs.gap(20, 10, 4),
        "digits": fb.envs.replay(**digits, n_agents=20, rewards="bernoulli"),
        "clusters": fb.envs.clustered(n_users=20, n_servers=4, n_clusters=2, n_arms=10, dim=6),
        "K = 2": fb.envs.sphere(40, 2, 6, rewards="bernoulli"),
        "d = 20": fb.envs.sphere(20, 10, 20, rewards="bernoulli"),
    }
    rows: dict[str, tuple[fb.Environment, int, dict[str, Any]]] = {name: (env, 600, {}) for name, env in stays.items()}
    rows["clusters"] = (stays["clusters"], 20_000, dict(unit="visit"))
    return rows | {
        "10 % away": (fb.envs.dropout(fresh, 0.1), 600, dict(trusted="secagg")),
        "20 % lie": (fresh, 600, dict(liars=0.2)),
        "50 rounds late": (fb.envs.delay(fresh, 50, "geometric"), 600, {}),
    }


def measure(env: fb.Environment, horizon: int, more: dict[str, Any], options: PlanningSize) -> dict[str, Any]:
    """Returns the recommendation of one instance, and the final regret of every candidate under other seeds."""
    horizon = options.pick(80, horizon, horizon)  # a delay must be shorter
    key, other = (jax.random.key(options.seed + i) for i in (0, 1000))
    plan = fb.plan(env, BUDGET, horizon=horizon, key=key, seeds=options.pick(2, 4, 4), progress=False, **more)
    able = {one.label: one.algo for one in plan.candidates if one.algo is not None and not one.excluded}
    run: dict[str, Any] = dict(seeds=options.pick(2, 16, 32), progress=False, throw=True)
    result = fb.sweep(env, able, horizon=horizon, stride=horizon, key=other, **run)
    assert plan.best is not None
    assert plan.best.forecast is not None

    def rounded(values: Any) -> list[float]:
        return [float(f"{value:.5g}") for value in values]

    return {
        "date": datetime.date.today().isoformat(),
        "version": fb.__version__,
        "recommended": plan.best.label,
        "forecast": rounded(plan.best.forecast[:3]),
        "regret": {label: rounded(final(result[label])) for label in able},
    }


def row(name: str, found: dict[str, Any]) -> str:
    """Returns the line of the table for one instance, from what `measure` returned."""
    regret = {label: np.array(values) for label, values in found["regret"].items()}
    best, least = found["recommended"], min(regret, key=lambda label: regret[label].mean())
    score = "it is" if least == best else "{:,.0f} ± {:,.0f}".format(*mean_error(regret[best] - regret[least]))
    predicted = "{:,.0f} ({:,.0f} to {:,.0f})".format(*found["forecast"])
    cells = (name, len(regret), best, predicted, "{:,.0f} ± {:,.0f}".format(*mean_error(regret[best])))
    return " | ".join(map(str, ("", *cells, f"{least}: {regret[least].mean():,.0f}", score, ""))).strip()


def main(options: PlanningSize) -> None:
    file = options.folder / ("planning.smoke.json" if options.smoke else "planning.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    rows = [(name, one) for name, one in instances().items() if name in (options.only or [name])]
    print("| instance | candidates | recommended | predicted regret | regret | least regret of all | excess |")
    for name, (env, horizon, more) in rows[options.pick(-1, 0, 0) :]:
        if not options.redraw:
            found[name] = measure(env, horizon, more, options)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(row(name, found[name]), flush=True)
        for label, values in sorted(found[name]["regret"].items(), key=lambda one: np.mean(one[1])):
            print("#   {:9,.0f} ± {:6,.0f}  {}".format(*mean_error(np.array(values)), label), flush=True)


if __name__ == "__main__":
    main(tyro.cli(PlanningSize, description=__doc__))
