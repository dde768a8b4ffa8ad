"""Compares what `fb.plan` recommends with all of its candidates, under seeds that it has not seen.

python experiments/planning.py [--smoke | --full] [--only NAME ...]

Eight instances of different kinds are planned, and three whose silos drop out, lie, or learn of rewards late. Every
candidate that met the demands, whether it was screened out or not, is then run for the whole horizon under 16 other
seeds. A row says what was recommended, what was predicted and found, which candidate had the least regret under the
other seeds, and by how many paired standard errors. Writes no picture.
"""

import dataclasses
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


def main(options: PlanningSize) -> None:
    rows = [(name, one) for name, one in instances().items() if name in (options.only or [name])]
    held_out = options.pick(2, 16, 32)
    run: dict[str, Any] = dict(seeds=held_out, progress=False, throw=True)
    print("| instance | candidates | recommended | predicted | found | least of all | more than that |")
    for name, (env, horizon, more) in rows[options.pick(-1, 0, 0) :]:
        horizon = options.pick(80, horizon, horizon)  # a delay must be shorter
        key, other = (jax.random.key(options.seed + i) for i in (0, 1000))
        plan = fb.plan(env, BUDGET, horizon=horizon, key=key, seeds=options.pick(2, 4, 4), progress=False, **more)
        able = {one.label: one.algo for one in plan.candidates if one.algo is not None and not one.excluded}
        result = fb.sweep(env, able, horizon=horizon, stride=horizon, key=other, **run)
        final = {label: result[label].regret[:, -1] for label in able}
        best, least = plan.best, min(final, key=lambda label: final[label].mean())
        assert best is not None
        assert best.forecast is not None
        (mean, error), (less, _) = mean_error(final[best.label]), mean_error(final[least])
        excess, paired = mean_error(final[best.label] - final[least])
        low, high = (f"{x:,.0f}" for x in best.forecast[1:3])
        score = "it is" if least == best.label else f"{excess:,.0f} ± {paired:,.0f}"
        found, other_one = f"{mean:,.0f} ± {error:,.0f}", f"{least}: {less:,.0f}"
        predicted = f"{best.regret:,.0f} ({low} to {high})"
        print(f"| {name} | {len(able)} | {best.label} | {predicted} | {found} | {other_one} | {score} |", flush=True)
        for label in sorted(final, key=lambda label: final[label].mean()):
            print(f"#   {final[label].mean():9,.0f} ± {mean_error(final[label])[1]:6,.0f}  {label}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(PlanningSize, description=__doc__))
