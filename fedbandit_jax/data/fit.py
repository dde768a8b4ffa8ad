"""The model of a log: fitted to a share of the rows of every silo, and measured on the others."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.special import expit, rel_entr

from fedbandit_jax.core.extras import require
from fedbandit_jax.core.printed import Printed
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import Column, Table
from fedbandit_jax.data.design import JointFeatures

CHUNK = 65536  # rows with features in float64 at a time
PENALTY = 1e-6  # of |theta|^2 / 2 beside the mean loss, for a unique minimum
GROUPS = 10  # of rows, by predicted mean
DIGITS = 9  # decimals of a fit, since the last digits of float64 depend on the processor
TOLERANCE = 1e-9  # largest entry of the final gradient


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit(Printed):
    """Goodness of fit of a model of rewards on held-out rows. Rewards and means are in [0, 1].

    `print(fit)` shows all of it, with the calibration in ten groups of rows sorted by predicted mean.
    """

    model: str  # "linear" or "logistic"
    source: str  # title of the table
    reward: str  # name of its column
    low: float  # reward mapped to 0
    high: float  # reward mapped to 1
    fitted_rows: int  # rows that fit the model
    replayed_rows: int  # held-out rows, which are replayed, and which everything below is about
    silos: int  # M
    sizes: tuple[int, int, int]  # replayed rows of the smallest, the median and the largest silo
    users: int  # identified users n, 0 if all are new
    crossing: int  # most silos of one user
    seen: int  # users who are also among the fitted rows, as the only users of their silo
    arms: int  # K
    dim: int  # d
    explained: float  # R^2 for "linear", share of deviance for "logistic": at most 1, and 0 for the overall mean
    noise_std: float  # standard deviation of residuals
    clipped: float  # share of (row, arm) pairs with means clipped to [0, 1]
    theta_norm: float  # Euclidean norm of theta
    logged: float  # mean reward in the log
    uniform: float  # model mean of uniform play
    best: float  # model mean if every row plays its best arm
    calibration: tuple[tuple[int, float, float], ...]  # for each group: rows, predicted mean, observed mean

    @property
    def measure(self) -> str:
        """Name of the measure `explained`."""
        return "R^2" if self.model == "linear" else "share of deviance explained"

    @property
    def miss(self) -> float:
        """Mean absolute difference between predicted and observed group means, weighted by rows."""
        return sum(n * abs(predicted - seen) for n, predicted, seen in self.calibration) / self.replayed_rows

    @property
    def sentence(self) -> str:
        """Caveat that accompanies all results."""
        others = self.users - self.seen
        same = f" and {self.seen:,} of the same" if self.seen else ""
        of = f" of {others:,} other users{same}" if others else f" of the same {self.users:,} users" * (self.users > 0)
        return (
            f"Rewards are those of a model of {self.source}, not of the world: {self.model} in d = {self.dim} "
            f"features, fitted to {self.fitted_rows:,} rows; on {self.replayed_rows:,} others{of}, which are replayed, "
            f"its {self.measure} is {self.explained:z.3f}, and the mean of a tenth of them is off by {self.miss:.3f} "
            f"on average; {100 * self.clipped:.2g} % of means are clipped; best arms gain "
            f"{self.best - self.uniform:.4f} a round over random ones."
        )

    def __str__(self) -> str:
        least, middle, most = self.sizes
        users = f", {self.users:,} users of up to {self.crossing} silos" if self.users else ""
        head = [
            self.sentence,
            f"silos: {self.silos:,} of {least:,} to {most:,} replayed rows, {middle:,} in the middle{users}; each "
            "serves one a round, whatever its size",
            f"rewards: ({self.reward} - {self.low:g}) / {self.high - self.low:g}, mean {self.logged:.4f} in the log; "
            f"of the model {self.best:.4f} by best and {self.uniform:.4f} by random ones of {self.arms} arms; "
            f"residuals {self.noise_std:.4f}",
            "calibration:  rows  predicted  observed",
        ]
        return "\n".join([*head, *(f"{n:18,}  {one:9.4f}  {other:8.4f}" for n, one, other in self.calibration)])


def split(
    place: np.ndarray, fit_share: float, seed: int, user: np.ndarray | None = None, time: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Splits rows into those that fit the model and those that are replayed, at least one in every silo.

    Without users, a share of every silo's rows fits. With users, a share of the users fits, each with all their rows,
    so the others are unseen. If all users of a silo were drawn, its last one is replayed. A silo with a single user
    splits that user's rows between both halves.

    Args:
        place: silos (N,), 0 ... M - 1.
        fit_share: the share.
        seed: seed of the draw.
        user: identified users (N,), 0 ... n - 1, if any.
        time: times (N,). The earliest rows, or users, fit the model, with ties broken by the draw.
    """
    rng = np.random.default_rng(seed)
    draws = rng.random(len(place))
    if time is not None:
        draws = np.argsort(np.lexsort((draws, time)))  # ranks
    counts = np.bincount(place)
    rank = require("pandas", "data").Series(draws).groupby(place).rank(method="first").to_numpy()
    fitted = rank <= np.minimum(np.round(fit_share * counts), counts - 1)[place]
    if user is not None:
        lot = rng.permutation(user.max() + 1)
        if time is not None:
            came = np.full(len(lot), np.inf)
            np.minimum.at(came, user, time)
            lot = np.argsort(np.lexsort((lot, came)))
        of_silo = np.unique(np.stack([place, user]), axis=1)
        crowd = np.bincount(of_silo[0])  # users of every silo
        last = np.full(len(crowd), -1)
        np.maximum.at(last, of_silo[0], lot[of_silo[1]])
        drawn = lot < round(fit_share * len(lot))
        emptied = (crowd > 1) & (last < round(fit_share * len(lot)))
        drawn[np.isin(lot, last[emptied])] = False
        fitted = np.where(crowd[place] > 1, drawn[user], fitted)
    others = np.flatnonzero(~fitted)
    return np.flatnonzero(fitted), others[np.argsort(place[others], kind="stable")]


def check_rows(design: JointFeatures, arm: Column, played: np.ndarray, table: Table) -> None:
    """Raises `ValueError` if fitted rows, or those of an arm, are fewer than the coefficients."""
    counts, need = np.bincount(played, minlength=len(design.arms)), design.dim
    if design.intercept is not None:
        need = design.users.rows.shape[1]
        if counts.min() < need:
            level = arm.levels[int(np.argmin(counts))]
            must = f"must have at least {need} rows of every arm to fit the model, one for each coefficient"
            got = f"{counts.min()} of {level!r} in column {arm.name!r} of {table.title}"
            raise BadValue("source", must, counts.min(), got=got)
    if len(played) < need:
        got = f"{len(played)} of the {len(table.rows)} rows of {table.title}"
        raise BadValue("source", f"must have at least d = {need} rows to fit the model", len(played), got=got)


def fitted(model: str, design: JointFeatures, rows: np.ndarray, played: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Fits the parameter theta (d,) of a model to these rows, with rewards y in [0, 1].

    It minimises the mean of (y - z)^2 / 2, or of log(1 + exp z) - y z for "logistic", with z = <x, theta>, plus
    `PENALTY` |theta|^2 / 2. The logistic model needs the features of all rows in memory.
    """
    if model == "logistic":
        x, y = design.of(rows, played[rows]), rewards[rows]
        sides = np.concatenate([y, 1 - y])  # a row counts y times as 1, and 1 - y times as 0
        kept = np.flatnonzero(sides) if y.max() > 0 and y.min() < 1 else np.arange(len(sides))  # both, as sklearn must
        options: Any = dict(C=1 / (len(y) * PENALTY), fit_intercept=False, tol=TOLERANCE, solver="newton-cholesky")
        regression = require("sklearn.linear_model", "data").LogisticRegression(**options)
        return regression.fit(x[kept % len(y)], kept < len(y), sides[kept]).coef_[0]
    gram, target = np.zeros((design.dim, design.dim)), np.zeros(design.dim)
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        x = design.of(some, played[some])
        gram += x.T @ x
        target += x.T @ rewards[some]
    return np.linalg.solve(gram / len(rows) + PENALTY * np.eye(design.dim), target / len(rows))


def measured(
    model: str,
    design: JointFeatures,
    theta: np.ndarray,
    rows: np.ndarray,
    played: np.ndarray,
    rewards: np.ndarray,
    overall: float,
) -> dict[str, Any]:
    """Returns the fields of a `Fit` about the replayed rows (n,); `overall` is the mean reward of the fitted rows."""
    means, beyond, best, uniform = [], 0, 0.0, 0.0
    chunk = max(1, CHUNK * 8 // len(design.arms))
    for start in range(0, len(rows), chunk):
        some = rows[start : start + chunk]
        scores = design.scores(some, theta)
        every = expit(scores) if model == "logistic" else np.clip(scores, 0, 1)
        beyond += 0 if model == "logistic" else int((np.abs(scores - every) > 1e-6).sum())
        every = np.round(every, DIGITS)
        best += float(every.max(1).sum())
        uniform += float(every.mean(1).sum())
        means.append(every[np.arange(len(some)), played[some]])
    mean, seen, n = np.concatenate(means), rewards[rows], len(rows)
    about = dict(
        explained=_explained(model, seen, mean, overall),
        noise_std=float(np.sqrt(((seen - mean) ** 2).mean())),
        clipped=beyond / (n * len(design.arms)),
        theta_norm=float(np.linalg.norm(theta)),
        logged=float(seen.mean()),
        uniform=uniform / n,
        best=best / n,
    )
    groups = [group for group in np.array_split(np.argsort(mean, kind="stable"), GROUPS) if len(group)]
    ends = ((len(group), float(mean[group].mean()), float(seen[group].mean())) for group in groups)
    calibration = tuple((rows, round(predicted, DIGITS), round(observed, DIGITS)) for rows, predicted, observed in ends)
    about = {name: round(value, DIGITS) for name, value in about.items()}
    return dict(replayed_rows=n, calibration=calibration, **about)


def _explained(model: str, rewards: np.ndarray, means: np.ndarray, overall: float) -> float:
    """Returns R^2, or the share of deviance explained, of means against one `overall` mean: 1 - loss / loss."""
    if model == "linear":
        loss, alone = (float(((rewards - mean) ** 2).sum()) for mean in (means, overall))
    else:
        each = (np.clip(mean, 1e-9, 1 - 1e-9) for mean in (means, overall))
        loss, alone = (float((rel_entr(rewards, p) + rel_entr(1 - rewards, 1 - p)).sum()) for p in each)
    return 1 - loss / alone if alone > 0 else 0.0
