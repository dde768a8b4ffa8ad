"""Propensities of a log: estimates of unknown ones, and doubts about stated ones."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from fedbandit_jax.envs import Logged

STRANGE = 4, 0.02  # standard errors, and a share for rounding, beyond which propensities are implausible
FEW = 30  # least rows of an arm for its own test
STATED = "Propensities are those of the table; that arms were drawn with these probabilities is taken for granted."
OF_SHARES = (
    "Doubtful: propensities are the shares of arms in the table, and so estimates. Unless arms were drawn with these "
    "probabilities, what else decided about arms is in no estimate and no interval."
)
ESTIMATED = (
    "Doubtful: propensities are estimated by silo and features. What else decided about arms is in no estimate and no "
    "interval, and a model of them that is wrong is in none either."
)


def estimated(env: Logged) -> np.ndarray:
    """Estimates the probability (N,) of the logged arm of every replayed row, from silo and features.

    It is a multinomial logistic regression on features with an intercept for each silo. The penalty is half of the
    squared norm of all coefficients.
    """
    x, arm, starts = np.asarray(env.rows, float), np.asarray(env.log.arm), np.asarray(env.starts)
    silo, n_features = np.repeat(np.arange(len(starts)), np.asarray(env.counts)), x.shape[1]
    shown, shape = (np.arange(len(x)), arm), (n_features + len(starts), env.spec.n_arms)

    def logits(w: np.ndarray) -> np.ndarray:
        w = w.reshape(shape)
        return special.log_softmax(x @ w[:n_features] + w[n_features:][silo], axis=1)

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        found = logits(w)
        miss = np.exp(found)
        miss[shown] -= 1
        slope = np.concatenate([x.T @ miss, np.add.reduceat(miss, starts)]).ravel()
        return float(w @ w / 2 - found[shown].sum()), w + slope

    best = optimize.minimize(loss, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    return np.exp(logits(best.x)[shown])


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
