"""Models of rewards, fitted to some rows of a log, and their goodness of fit on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float
from scipy.special import expit, rel_entr

from fedbandit_jax.core.printed import Printed

CHUNK = 65536  # rows with features in float64 at a time
PENALTY = 1e-6  # of |theta|^2 / 2 beside the mean loss, for a unique minimum
GROUPS = 10  # of rows, by predicted mean
DIGITS = 9  # decimals of a fit, since the last digits of float64 depend on the processor
STEPS, TOLERANCE = 100, 1e-9  # most Newton steps, and the largest entry of the final gradient


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


Batches = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]  # () -> pieces of features (n, d) and rewards (n,)


def least_squares(batches: Batches, dim: int) -> Float[np.ndarray, " d"]:
    """Minimises the mean of (y - <x, w>)^2 / 2, plus `PENALTY` |w|^2 / 2."""
    gram, target, n = np.zeros((dim, dim)), np.zeros(dim), 0
    for x, y in batches():
        gram += x.T @ x
        target += x.T @ y
        n += len(y)
    return np.linalg.solve(gram / n + PENALTY * np.eye(dim), target / n)


def logistic(batches: Batches, dim: int) -> Float[np.ndarray, " d"]:
    """Minimises the mean of log(1 + exp z) - y z for z = <x, w>, plus `PENALTY` |w|^2 / 2, by Newton's method.

    Rewards are in [0, 1]. A step that does not lower the loss is halved.

    Raises:
        RuntimeError: no convergence after `STEPS` steps.
    """
    w, step, before = np.zeros(dim), np.zeros(dim), np.inf
    gradient = np.zeros(dim)
    for _ in range(STEPS):
        loss, gradient, hessian, n = 0.0, np.zeros(dim), np.zeros((dim, dim)), 0
        for x, y in batches():
            z = x @ w
            mean = expit(z)
            loss += float((np.logaddexp(0, z) - y * z).sum())
            gradient += x.T @ (mean - y)
            hessian += (x * (mean * (1 - mean))[:, None]).T @ x
            n += len(y)
        loss = loss / n + PENALTY * float(w @ w) / 2
        if loss > before + 1e-12 and np.abs(step).max() > 1e-12:
            step = step / 2
            w = w - step
            continue
        gradient = gradient / n + PENALTY * w
        if np.abs(gradient).max() <= TOLERANCE:
            return w
        step = -np.linalg.solve(hessian / n + PENALTY * np.eye(dim), gradient)
        w, before = w + step, loss
    got = f"{np.abs(gradient).max():g}"
    raise RuntimeError(f"model must be fitted to a gradient of {TOLERANCE:g} in {STEPS} steps, got {got}")


def explained(model: str, rewards: np.ndarray, means: np.ndarray, overall: float) -> float:
    """Returns R^2, or the share of deviance explained, of means against one `overall` mean: 1 - loss / loss."""
    if model == "linear":
        loss, alone = (float(((rewards - mean) ** 2).sum()) for mean in (means, overall))
    else:
        each = (np.clip(mean, 1e-9, 1 - 1e-9) for mean in (means, overall))
        loss, alone = (float((rel_entr(rewards, p) + rel_entr(1 - rewards, 1 - p)).sum()) for p in each)
    return 1 - loss / alone if alone > 0 else 0.0


def calibration(rewards: np.ndarray, means: np.ndarray) -> tuple[tuple[int, float, float], ...]:
    """Returns rows, predicted and observed mean of ten groups of rows by predicted mean; fewer for few rows."""
    order = np.argsort(means, kind="stable")
    groups = [group for group in np.array_split(order, GROUPS) if len(group)]
    ends = ((len(group), float(means[group].mean()), float(rewards[group].mean())) for group in groups)
    return tuple((n, round(predicted, DIGITS), round(seen, DIGITS)) for n, predicted, seen in ends)
