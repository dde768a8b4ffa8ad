"""What privacy costs on a table, before anything is simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedbandit_jax.envs import Logged
from fedbandit_jax.planning.demands import quietest
from fedbandit_jax.planning.evaluation import OF_SHARES, STATED, strange
from fedbandit_jax.privacy import Budget, Users, calibrate
from fedbandit_jax.privacy.budget import sensitivity_sq
from fedbandit_jax.privacy.statistic import Bounds
from fedbandit_jax.report.tables import aligned

EPSILONS = (0.1, 1.0, 10.0)
TRUSTS = {"silo_local": "if silos trust nobody", "secagg": "with secure aggregation"}
TOO_GOOD = 0.9  # R^2 or share of the deviance
FEW = 10  # rows of a silo whose mean is imprecise


def price(env: Logged) -> Iterator[str]:
    """Compares gains of the best arms with the uncertainty of an arm's mean, in sentences and tables.

    The noise is for one release of the sums of all rows, by the statistic of `fb.plan`. Several releases add more. For
    returning users a second table protects all visits of a user, with one visit at every silo.
    """
    fit, delta = env.fit, 1 / (10 * env.fit.replayed_rows)
    m, n = fit.silos, fit.replayed_rows
    once: Any = dict(n_syncs=1, release="blt", n_agents=m, batch=max(1, n // m), dim=fit.dim)
    entry = float(env.rows[0, 0] * env.arms[0, 0])  # of an arm's features, which is the same in all rows
    gain, chance = fit.best - fit.uniform, fit.noise_std * math.sqrt(fit.arms / n)
    rules = (Bounds.of(quietest(env.spec, trust)) for trust in TRUSTS)  # which move sums by less than (x y, x x')
    squares = (sensitivity_sq("replace", one.gram_scale * one.weight, one.response) for one in rules)
    moves = [math.sqrt(square / sensitivity_sq("replace")) for square in squares]

    def table(rows: int, users: Users) -> str:
        cells = [("epsilon", *TRUSTS.values())]
        for epsilon in EPSILONS:
            noises = (calibrate(Budget(epsilon, delta), trust=trust, users=users, **once).model for trust in TRUSTS)
            stds = [float(noise.sum_std()) * less * fit.arms / (entry * rows) for noise, less in zip(noises, moves)]
            cells.append((f"{epsilon:g}", *(f"{std:.4f}{' (!)' * (std > gain)}" for std in stds)))
        return aligned(cells)

    yield f"M = {m:,} silos, K = {fit.arms} arms, d = {fit.dim}, {n:,} rows: T = {n // m:,} rounds if each comes once."
    yield (
        f"By the model the best arms gain {gain:.4f} a visit over random arms. The mean of an arm is uncertain by "
        f"{chance:.4f} by chance. Noise that protects one visit at delta = {delta:.1g} adds:"
    )
    yield table(n, Users(1))
    if env.users is not None:
        pairs = np.unique([env.users, np.repeat(np.arange(m), env.counts)], axis=1)
        comes = np.bincount(np.unique(pairs[0], return_counts=True)[1])
        most = len(comes) - 1
        listed = ", ".join(f"{count:,} come to {silos}" for silos, count in enumerate(comes) if count)
        silos, kept = "silos" if most > 1 else "silo", pairs.shape[1]
        yield ""
        yield (
            f"Of {comes.sum():,} users {listed} {silos}. With one visit of each user at every silo, the mean of an arm "
            f"is uncertain by {chance * math.sqrt(n / kept):.4f} by chance. Noise that protects all visits of a user, "
            f"by unit = Users(visits=1, silos={most}), adds:"
        )
        yield table(kept, Users(1, silos=most))
        if most > 1:
            yield f"If few users come to {most} silos, consider leaving out their visits to other silos."
    yield "(!) more than the best arms gain: too few rows for this budget"
    if small := int((env.counts < FEW).sum()):
        yield f"{small:,} of {m:,} silos with fewer than {FEW} replayed rows count as much as any other."
    if env.log.propensity is not None:
        yield f"{OF_SHARES if env.shares else STATED} {strange(env)}"
    else:
        yield (
            "Without --propensity nothing says that arms were drawn at random. If some users got some arms more often, "
            "this gain may come from the users."
        )
    if fit.explained <= 0:
        yield "The model predicts no better than the mean of all rewards, and this gain may be chance."
    if fit.explained > TOO_GOOD:
        yield "The model predicts nearly everything: is a feature known only after the arm was chosen?"
