"""Off-policy values of algorithms by a log whose arms were drawn at random, beside those by a model of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from scipy import special, stats

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine import record as records
from fedbandit_jax.engine.simulation import sweep
from fedbandit_jax.envs import Logged
from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.report.tables import aligned

CHUNK = 1 << 18  # visits that are weighed at a time
HEAD = ("algorithm", "by the model", "by inverse propensities", "doubly robust", "minus the log", "rows that count")
STRANGE = 4, 0.02  # standard errors, and a share for rounding, beyond which propensities are not those of the draw
ENOUGH = 50  # rows that count, of which intervals can be trusted
FEW = 30  # rows of an arm with which its share cannot be told from its propensities


class Interval(NamedTuple):
    """An estimate and its confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return "{} ({} to {})".format(*(f"{x:.4f}" if abs(x) < 1e4 else f"{x:.3g}" for x in self))


class Value(NamedTuple):
    """The mean reward of the arms that an algorithm played, in [0, 1], by four estimators."""

    model: float  # the model's means
    ips: Interval  # logged rewards of arms that were shown, weighted by 1 / propensity
    doubly_robust: Interval  # the model's means, and its errors on these arms weighted by 1 / propensity
    gain: Interval  # the doubly robust estimate minus the rewards that the log has for the same visits
    rows: float  # effective number of rows whose weights are not 0, (sum w)^2 / sum w^2
    self_normalised: Interval  # as `ips`, divided by the mean weight


@dataclasses.dataclass(frozen=True)
class Values:
    """The values that `off_policy` estimated, by label; printing them shows a table."""

    values: Mapping[str, Value]
    logged: float  # mean reward of the replayed rows, silos weighted alike, as they are served
    level: float  # of the intervals
    basis: str  # what the model is
    doubt: str = ""  # why estimates from the log mean little: propensities not those of the draw, or few rows

    def __getitem__(self, label: str) -> Value:
        return self.values[label]

    def __iter__(self):
        return iter(self.values)

    def __str__(self) -> str:
        rows = [
            (label, f"{v.model:.4f}", str(v.ips), str(v.doubly_robust), str(v.gain), f"{v.rows:,.0f}")
            for label, v in self.values.items()
        ]
        head = (
            f"Mean reward of the arms played, all silos alike; of those in the log {self.logged:.4f}; "
            f"{100 * self.level:g} % intervals."
        )
        return "\n".join([head, self.basis, *[self.doubt] * bool(self.doubt), aligned([HEAD, *rows])])


def off_policy(
    env: Logged,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    horizon: int,
    key: Array,
    seeds: int = 16,
    level: float = 0.95,
    progress: bool | None = None,
) -> Values:
    """Estimates from the log the mean reward of arms that algorithms learned to play from rewards of its model.

    Algorithms run as in `fb.sweep`, and learn from the model, which was fitted to the other rows. What was shown to the
    users they meet, and what happened, they do not see. So with weights w = 1 / propensity where the arm played is the
    one that was shown, and else 0, the mean of w y is an unbiased estimate of the reward of these arms in the world,
    whatever the model is worth. So is the mean of m(a) + w (y - m(b)), with the model's means m of the arm played and
    the arm shown, which varies less where the model fits. What it gains over the log is the mean of m(a) + w (y - m(b))
    - y, which varies less than the difference of two means. Intervals are by Student's law, of sums by row, or by user
    if users are told apart, who are met again and again. They allow for one more row, whose reward is off by 1: all of
    few rows may have the same reward by chance. `Values.doubt` names algorithms for which fewer than 50 rows count.

    The mean of 1 / propensity, of rows that showed an arm and 0 of others, is 1 for every arm, and so K without regard
    to arms, if these are the probabilities by which arms were drawn. `Values.doubt` says so where one of these means is
    more than four standard errors and 2 % from it; an arm that few rows showed is judged with all others only.

    The model's own mean has no interval: the arms were learned from the same model, which flatters them. If it is
    outside of the doubly robust interval, do not trust the model's regret.

    Args:
        env: an environment of `fb.data.table` whose `propensity` is a column.
        algos: algorithms, by label or in order, as for `fb.sweep`.
        horizon: T, number of rounds.
        key: PRNG key.
        seeds: number of runs; intervals are about the mean over these runs.
        level: confidence level of the intervals, in (0, 1).
        progress: as for `fb.simulate`.

    Returns:
        A `Values` with a `Value` for every label; `print` it.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong type.

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
    if env.log.propensity is None:
        raise BadValue(
            "env", "must have propensities", None, got="a table without: name their column in fb.data.table(...)"
        )
    level = validate.probability("level", level)
    record = {"arm": records.arms, "row": _row}
    result = sweep(
        env, algos, horizon=horizon, stride=1, key=key, seeds=seeds, record=record, progress=progress, throw=True
    )
    kept = {label: result[label].records for label in result}
    found = {label: _value(env, one["row"], one["arm"], level) for label, one in kept.items()}
    of_silos = np.add.reduceat(np.asarray(env.log.reward, float), np.asarray(env.starts)) / np.asarray(env.counts)
    few = ", ".join(label for label, value in found.items() if value.rows < ENOUGH)
    doubts = [_doubt(env), f"Doubtful: fewer than {ENOUGH} rows count for {few}." if few else ""]
    return Values(found, float(of_silos.mean()), level, env.spec.basis, " ".join(filter(None, doubts)))


def _doubt(env: Logged) -> str:
    """A warning if the mean of 1 / propensity is not the number of arms, or not 1 for an arm with 0 where it is not."""
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


def _value(env: Logged, rows: np.ndarray, arms: np.ndarray, level: float) -> Value:
    log = env.log
    rows, arms = rows.ravel(), arms.ravel()
    who = np.asarray(log.row if env.users is None else env.users)
    _, who = np.unique(who, return_inverse=True)
    size = int(who.max()) + 1
    visits, modelled, weighted, robust, gained, weight = np.zeros((6, size))
    weights = np.zeros(len(who))
    for start in range(0, len(rows), CHUNK):
        row, arm = rows[start : start + CHUNK], arms[start : start + CHUNK]
        shown, reward = np.asarray(log.arm)[row], np.asarray(log.reward, float)[row]
        w = (arm == shown) / np.asarray(log.propensity, float)[row]
        mean = _means(env, row, arm)
        both = mean + w * (reward - _means(env, row, shown))
        terms = (np.ones(len(row)), mean, w * reward, both, both - reward, w)
        for total, term in zip((visits, modelled, weighted, robust, gained, weight), terms):
            total += np.bincount(who[row], term, size)
        weights += np.bincount(row, w, len(who))
    if weights.any():
        effective, typical = weights.sum() ** 2 / (weights**2).sum(), (weights**2).sum() / weights.sum()
    else:
        effective, typical = 0.0, 1 / np.min(np.asarray(log.propensity, float))
    of = [(weighted, visits), (weighted, weight), (robust, visits), (gained, visits)]
    ips, normalised, dr, gain = (_interval(*one, level, effective, typical) for one in of)
    return Value(float(modelled.sum() / visits.sum()), ips, dr, gain, float(effective), normalised)


def _means(env: Logged, row: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """The model's means (n,) of these arms for these rows."""
    theta, arms = np.asarray(env.theta, float), np.asarray(env.arms, float)
    own = theta if env.intercept is None else theta[1:]
    scores = (np.dot(arms, own.reshape(arms.shape[1], -1))[arm] * np.asarray(env.rows)[row]).sum(1)
    if env.intercept is not None:
        scores = scores + env.intercept * theta[0]
    return special.expit(scores) if env.rewards.model == "logistic" else np.clip(scores, 0, 1)


def _interval(total: np.ndarray, visits: np.ndarray, level: float, effective: float, typical: float) -> Interval:
    """The mean of a visit, of sums over the visits of independent users: the error is that of a ratio of sums.

    As if one more row had a reward that is off by 1, with a `typical` weight.
    """
    n = visits.sum()
    if not n:
        return Interval(math.nan, -math.inf, math.inf)
    mean = total.sum() / n
    met = max(int((visits > 0).sum()), 2)
    error = np.sqrt(((total - mean * visits) ** 2).sum() * met / (met - 1) + typical**2) / n
    half = stats.t.ppf((1 + level) / 2, max(effective - 1, 1)) * error
    return Interval(float(mean), float(mean - half), float(mean + half))
