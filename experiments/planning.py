"""Compares what `fb.plan` recommends with all of its candidates, under seeds that it has not seen.

python experiments/planning.py [--smoke | --full] [--only NAME ...] [--redraw]

Eight instances of different kinds are planned, and three whose silos drop out, lie, or learn of rewards late. Every
candidate that met the demands, whether it was screened out or not, is then run for the whole horizon under 16 other
seeds. A row says what was recommended, what was predicted and found, which candidate had the least regret under the
other seeds, and by how many paired standard errors.

Draws no picture. An instance is kept in planning.json when it is done, in place of its older result. --redraw prints
the rows of that file again.
"""

import dataclasses
import datetime
import json
from typing import Any

import jax
import numpy as np
import tyro
from beyond_policies import instance
from curves import mean_error
from options import Size

import fedbandit_jax as fb


@dataclasses.dataclass(frozen=True)
class PlanningSize(Size):
    """Compare plans with all of their candidates.

    Args:
        only: names of the instances; all by default.
    """

    only: tuple[str, ...] = ()


BUDGET = fb.privacy.Budget(2.0, 1e-5)


def table(n_agents: int, n_arms: int, seed: int) -> fb.Environment:
    """Returns arms that are the same in every round and for every user."""
    arms, theta = instance(seed)
    rows, sizes = np.tile(arms[:n_arms], (n_agents, 1)), np.full(n_agents, n_arms)
    return fb.envs.replay(rows, sizes, theta, n_agents=n_agents, rewards="bernoulli")


def instances() -> dict[str, tuple[fb.Environment, int, dict[str, Any]]]:
    """Returns environments, horizons and other arguments of `fb.plan` by their names."""
    digits = fb.data.classification("digits", components=2)
    fresh = fb.envs.sphere(40, 20, 6, rewards="bernoulli")
    stays = {
        "fresh arms": (fresh, 600),
        "20 fixed arms": (table(40, 20, 301), 600),
        "3 fixed arms": (table(40, 3, 302), 600),
        "a gap": (fb.envs.gap(20, 10, 4), 600),
        "digits": (fb.envs.replay(**digits.arguments(), n_agents=20, rewards="bernoulli"), 600),
        "clusters": (fb.envs.clustered(n_users=20, n_servers=4, n_clusters=2, n_arms=10, dim=6), 20_000),
        "K = 2": (fb.envs.sphere(40, 2, 6, rewards="bernoulli"), 600),
        "d = 20": (fb.envs.sphere(20, 10, 20, rewards="bernoulli"), 600),
    }
    all_alike = {name: (env, t, dict(unit="visit") if env.spec.n_users else {}) for name, (env, t) in stays.items()}
    return all_alike | {
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
    return {
        "date": datetime.date.today().isoformat(),
        "version": fb.__version__,
        "recommended": plan.best.label,
        "forecast": [rounded(value) for value in plan.best.forecast[:3]],
        "regret": {label: [rounded(value) for value in result[label].regret[:, -1]] for label in able},
    }


def rounded(value: float) -> float:
    """Returns five digits of a number, as in other files of numbers."""
    return float(f"{value:.5g}")


def row(name: str, found: dict[str, Any]) -> str:
    """Returns the line of the table for one instance, from what `measure` returned."""
    final = {label: np.array(values) for label, values in found["regret"].items()}
    best, least = found["recommended"], min(final, key=lambda label: final[label].mean())
    excess, paired = mean_error(final[best] - final[least])
    score = "it is" if least == best else f"{excess:,.0f} ± {paired:,.0f}"
    mean, error = mean_error(final[best])
    predicted = "{:,.0f} ({:,.0f} to {:,.0f})".format(*found["forecast"])
    cells = (name, len(final), best, predicted, f"{mean:,.0f} ± {error:,.0f}")
    return " | ".join(map(str, ("", *cells, f"{least}: {final[least].mean():,.0f}", score, ""))).strip()


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
