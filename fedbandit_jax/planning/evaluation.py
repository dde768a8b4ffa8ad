"""Off-policy values of algorithms from a log with randomised arms, next to values from a model of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from scipy import special, stats

from fedbandit_jax.core import validate
from fedbandit_jax.core.printed import Printed
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine import record as records
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.envs import Logged
from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.report.measured import listed
from fedbandit_jax.report.tables import aligned

CHUNK = 1 << 18  # visits weighted at a time
ENOUGH = 50  # effective rows for reliable intervals
STRANGE = 4, 0.02  # standard errors, and a share for rounding, beyond which propensities are implausible
FEW = 30  # least rows of an arm for its own test
STATED = "Propensities are those of the table. Estimates hold only if arms were drawn with these probabilities."
OF_SHARES = (
    "Doubtful: propensities are the shares of arms in the table, so they are estimates. If anything else decided about "
    "arms, no estimate and no interval accounts for it."
)


class Interval(NamedTuple):
    """An estimate and its confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return "{} ({} to {})".format(*(f"{x:.4f}" if abs(x) < 1e4 else f"{x:.3g}" for x in self))


class Value(NamedTuple):
    """Estimates of the mean reward of an algorithm's arms, in [0, 1], by several estimators."""

    model: float  # the model's means
    ips: Interval  # logged rewards of matching arms, weighted by 1 / propensity
    doubly_robust: Interval  # the model's means, and its errors on matching arms weighted by 1 / propensity
    gain: Interval  # the doubly robust estimate minus the logged rewards of the same visits
    rows: float  # effective number (sum w)^2 / sum w^2 of rows, or of identified users


@dataclasses.dataclass(frozen=True)
class Values(Printed):
    """The values estimated by `off_policy`, by label; printing them shows a table."""

    values: Mapping[str, Value]
    logged: float  # mean reward of the replayed rows, with silos weighted as in the values
    level: float  # of the intervals
    basis: str  # description of the model, and of the source of propensities
    doubt: str = ""  # why estimates from the log are unreliable: propensities, or few rows
    by_size: bool = False  # whether silos are weighted by their rows

    def __getitem__(self, label: str) -> Value:
        return self.values[label]

    def __iter__(self):
        return iter(self.values)

    def __repr__(self) -> str:
        return f"Values({listed(list(self.values))}): print it for a table"

    def __str__(self) -> str:
        rows = [
            (label, f"{v.model:.4f}", str(v.ips), str(v.doubly_robust), str(v.gain), f"{v.rows:,.0f}")
            for label, v in self.values.items()
        ]
        silos = "silos by their rows" if self.by_size else "all silos alike"
        head = (
            f"Mean reward of the arms played, {silos}; of those in the log {self.logged:.4f}; "
            f"{100 * self.level:g} % intervals."
        )
        weighted = "by inverse propensities"
        names = ("algorithm", "by the model", weighted, "doubly robust", "minus the log", "rows that count")
        return "\n".join([head, self.basis, *[self.doubt] * bool(self.doubt), aligned([names, *rows])])


def off_policy(
    env: Logged,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    horizon: int,
    key: Array,
    seeds: int = 16,
    level: float = 0.95,
    by_size: bool = False,
    progress: bool | None = None,
) -> Values:
    """Estimates from a log the mean reward of arms that algorithms learned to play with rewards of its model.

    Algorithms learn from the model, which was fitted to the other rows. They do not see the logged arms and rewards.
    Let w = 1 / propensity if the played arm a is the logged arm b, and otherwise 0. The mean of w y is an unbiased
    estimate of the reward of the played arms in the world, for any model. With the model's means m, the mean of m(a) +
    w (y - m(b)) is also unbiased, and varies less if the model fits. The gain over the log is this minus y.

    Intervals use Student's law on sums by row, or by identified user. They allow for one more row of the largest weight
    with a reward off by 1. `Values.doubt` names algorithms with fewer than 50 effective rows, and the row with the
    least propensity. It also names implausible propensities: the mean of 1 / propensity is then not K, by more than
    four standard errors and 2 %. The model's own mean is biased upwards, since the arms were learned from it. If it is
    outside the doubly robust interval, do not trust the model's regret.

    Args:
        env: an environment of `fb.data.table`, with a column of `propensity`.
        algos: algorithms, by label or in order, as for `fb.sweep`.
        horizon: number of rounds T.
        key: PRNG key.
        seeds: number of runs; intervals are for the mean over these runs.
        level: confidence level of the intervals, in (0, 1).
        by_size: whether to weight silos by their replayed rows; otherwise all weigh alike, as in the runs.
        progress: as for `fb.simulate`.

    Returns:
        A `Values` with a `Value` for every label; `print` it.

    Reference: Dudik, Langford & Li (2011), "Doubly robust policy evaluation and learning", equation 1.

    Example:
        >>> import jax, numpy as np, fedbandit_jax as fb
        >>> rng = np.random.default_rng(0)
        >>> place, arm = rng.integers(0, 3, 3000), rng.integers(0, 2, 3000)
        >>> log = dict(school=place, size=arm, passed=rng.random(3000) < 0.4 + 0.3 * arm, p=np.full(3000, 0.5))
        >>> env = fb.data.table(log, silo="school", arm="size", reward="passed", propensity="p")
        >>> values = fb.off_policy(env, [fb.algos.fed_lin_ucb()], horizon=100, key=jax.random.key(0), seeds=4)
        >>> values["FedLinUCB"].doubly_robust.low < values["FedLinUCB"].model < values["FedLinUCB"].doubly_robust.high
        True
    """
    env = validate.instance("env", env, Logged, "an environment of fb.data.table")
    level, by_size = validate.probability("level", level), validate.boolean("by_size", by_size)
    if env.log.propensity is None:
        name = "name their column in fb.data.table(...)"
        raise BadValue("env", "must have propensities", None, got=f"a table without: {name}")
    record = {"arm": records.arms, "row": _row}
    result = sweep(
        env, algos, horizon=horizon, stride=1, key=key, seeds=seeds, record=record, progress=progress, throw=True
    )
    kept = {label: result[label].records for label in result}
    found = {label: _value(env, one["row"], one["arm"], level, by_size) for label, one in kept.items()}
    few = ", ".join(label for label, value in found.items() if value.rows < ENOUGH)
    each = np.repeat(env.counts, env.counts)  # size of the silo of every row
    logged = float(np.average(np.asarray(env.log.reward, float), weights=None if by_size else 1 / each))
    stated = np.asarray(env.log.propensity, float)
    least = f"The least propensity is {stated.min():.3g}, in row {env.log.row[stated.argmin()]}."
    rare = f"Doubtful: fewer than {ENOUGH} rows count for {few}. {least}" if few else ""
    doubts = " ".join(filter(None, [OF_SHARES * env.shares, strange(env), rare]))
    basis = env.spec.basis if env.shares else f"{env.spec.basis} {STATED}"
    return Values(found, logged, level, basis, doubts, by_size)


def strange(env: Logged) -> str:
    """Warns if the mean of 1 / propensity is not K over all rows, or not 1 for an arm with 0 for other rows."""
    shown, inverse = np.asarray(env.log.arm), 1 / np.asarray(env.log.propensity, float)
    each = [(f" of rows that showed arm {a}, and of 0 for others,", np.where(shown == a, inverse, 0.0), 1)
            for a in range(env.spec.n_arms) if (shown == a).sum() >= FEW]  # fmt: skip
    for which, value, expected in [("", inverse, env.spec.n_arms), *each]:
        error, (errors, share) = value.std() / math.sqrt(len(value)), STRANGE
        if abs(value.mean() - expected) > errors * error + share * expected:
            return (
                f"Doubtful: the mean of 1 / propensity{which} is {value.mean():.4g} ± {error:.2g} in the log, and "
                f"{expected} where every arm can be shown and these are the probabilities by which arms were drawn."
            )
    return ""


def _row(moment: records.Moment) -> Array:
    return moment.world.row


def _value(env: Logged, rows: np.ndarray, arms: np.ndarray, level: float, by_size: bool = False) -> Value:
    log, counts = env.log, np.asarray(env.counts)
    rows, arms = rows.ravel(), arms.ravel()
    who = np.asarray(log.row if env.users is None else env.users)
    _, who = np.unique(who, return_inverse=True)
    size, counted = int(who.max()) + 1, np.repeat(counts / counts.mean() if by_size else np.ones(len(counts)), counts)
    visits, modelled, weighted, robust, gained, weight = np.zeros((6, size))
    for start in range(0, len(rows), CHUNK):
        row, arm = rows[start : start + CHUNK], arms[start : start + CHUNK]
        shown, reward = np.asarray(log.arm)[row], np.asarray(log.reward, float)[row]
        w = (arm == shown) / np.asarray(log.propensity, float)[row]
        mean = _means(env, row, arm)
        both = mean + w * (reward - _means(env, row, shown))
        terms = (np.ones(len(row)), mean, w * reward, both, both - reward, w)
        for total, term in zip((visits, modelled, weighted, robust, gained, weight), terms):
            total += np.bincount(who[row], term * counted[row], size)
    if weight.any():
        met = visits > 0
        effective = weight.sum() ** 2 / (weight**2).sum()
        largest = (weight[met] / visits[met]).max() * visits.sum() / met.sum()
    else:
        effective, largest = 0.0, 1 / np.min(np.asarray(log.propensity, float))
    ips, dr, gain = (_interval(one, visits, level, effective, largest) for one in (weighted, robust, gained))
    return Value(float(modelled.sum() / visits.sum()), ips, dr, gain, float(effective))


def _means(env: Logged, row: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """Returns the model's means (n,) of these arms for these rows."""
    theta, arms = np.asarray(env.theta, float), np.asarray(env.arms, float)
    own = theta if env.intercept is None else theta[1:]
    scores = (np.dot(arms, own.reshape(arms.shape[1], -1))[arm] * np.asarray(env.rows)[row]).sum(1)
    if env.intercept is not None:
        scores = scores + env.intercept * theta[0]
    return special.expit(scores) if env.rewards.model == "logistic" else np.clip(scores, 0, 1)


def _interval(total: np.ndarray, visits: np.ndarray, level: float, effective: float, largest: float) -> Interval:
    """Returns the mean over visits, from sums by independent users, with the error of a ratio of sums.

    It adds one user with rewards off by 1, with the `largest` weight.
    """
    n = visits.sum()
    if not n:
        return Interval(math.nan, -math.inf, math.inf)
    mean = total.sum() / n
    met = max(int((visits > 0).sum()), 2)
    error = np.sqrt(((total - mean * visits) ** 2).sum() * met / (met - 1) + largest**2) / n
    half = stats.t.ppf((1 + level) / 2, max(effective - 1, 1)) * error
    return Interval(float(mean), float(mean - half), float(mean + half))
